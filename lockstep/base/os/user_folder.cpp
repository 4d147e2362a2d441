#include "lockstep/base/os/user_folder.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/variable.h"

namespace lockstep {
namespace {

struct Location {
  const char *variable, *below_home;
};

Location location_of(UserFolder kind) {
  switch (kind) {
    case UserFolder::settings:
      return {"XDG_CONFIG_HOME", ".config"};
    case UserFolder::state:
      return {"XDG_STATE_HOME", ".local/state"};
    case UserFolder::data:
      break;
  }
  return {"XDG_DATA_HOME", ".local/share"};
}

std::string folder_in(const Location& location) {
  // The specification ignores relative paths.
  if (const std::string base = variable(location.variable); base.starts_with('/')) {
    return join_path(base, "lockstep");
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : join_path(join_path(home, location.below_home), "lockstep");
}

}  // namespace

std::string find_user_folder(UserFolder kind) {
  if (const std::string home = variable("LOCKSTEP_HOME"); !home.empty()) {
    return std::filesystem::absolute(home).string();
  }
  return folder_in(location_of(kind));
}

std::string find_cache_folder() { return folder_in({"XDG_CACHE_HOME", ".cache"}); }

std::string user_folder(UserFolder kind, const std::string& name) {
  const std::string folder = find_user_folder(kind);
  if (!folder.empty()) return join_path(folder, name);
  throw InvalidArgument("[files] there is no folder for the user's files: HOME is not set",
                        "name a folder with the environment variable LOCKSTEP_HOME");
}

}  // namespace lockstep
