// Where a user's files lie, by the XDG Base Directory Specification.
#pragma once

#include <string>

namespace lockstep {

enum class UserFolder {
  settings,  // XDG_CONFIG_HOME, ~/.config
  state,     // XDG_STATE_HOME, ~/.local/state
  data,      // XDG_DATA_HOME, ~/.local/share
};

// The folder `name` among the user's files: in the folder that LOCKSTEP_HOME names, otherwise in
// the folder lockstep of the location above. It need not exist. Throws InvalidArgument if no
// variable names a folder. Thread-safe while the environment does not change.
std::string user_folder(UserFolder kind, const std::string& name);

// The same without a name, and "" if no variable names a folder.
std::string find_user_folder(UserFolder kind);

// The folder for what can be made again: lockstep in XDG_CACHE_HOME, or in ~/.cache. LOCKSTEP_HOME
// does not move it. "" if no variable names a folder. Thread-safe as above.
std::string find_cache_folder();

}  // namespace lockstep
