#include "lockstep/cluster/start_mode.h"

#include <map>
#include <string>

namespace lockstep {
namespace {

std::map<std::string, StartMode>& start_modes() {
  static std::map<std::string, StartMode> modes;
  return modes;
}

}  // namespace

bool add_start_mode(const char* argument, StartMode run) {
  return start_modes().emplace(argument, run).second;
}

StartMode find_start_mode(const char* argument) {
  const auto found = start_modes().find(argument);
  return found == start_modes().end() ? nullptr : found->second;
}

}  // namespace lockstep
