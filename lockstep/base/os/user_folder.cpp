#include "lockstep/base/os/user_folder.h"

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"

namespace lockstep {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string user_folder(UserFolder place, const std::string& name) {
  if (const std::string home = variable("LOCKSTEP_HOME"); !home.empty()) {
    return join_path(std::filesystem::absolute(home).string(), name);
  }
  const bool settings = place == UserFolder::settings;
  // The specification ignores relative paths.
  if (const std::string base = variable(settings ? "XDG_CONFIG_HOME" : "XDG_STATE_HOME");
      base.starts_with('/')) {
    return join_path(base, "lockstep/" + name);
  }
  const std::string home = variable("HOME");
  if (home.empty()) {
    throw InvalidArgument("[files] there is no place for the user's files: HOME is not set",
                          "name a folder with the environment variable LOCKSTEP_HOME");
  }
  return join_path(home, (settings ? ".config/lockstep/" : ".local/state/lockstep/") + name);
}

}  // namespace lockstep
