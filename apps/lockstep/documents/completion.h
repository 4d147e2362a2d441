// Completion scripts for shells.
#pragma once

#include <string>

#include "apps/lockstep/command.h"

namespace lockstep::command {

// Generated from the definitions of the command line, job files and layers.
std::string bash_completion(const Commands& commands);
std::string zsh_completion(const Commands& commands);
std::string fish_completion(const Commands& commands);

}  // namespace lockstep::command
