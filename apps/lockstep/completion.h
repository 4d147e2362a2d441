// Scripts that teach shells to complete the command.
#pragma once

#include <string>

#include "apps/lockstep/command.h"

namespace lockstep::command {

// Made from the definitions of the command line, of job files and of layers.
std::string bash_completion(const Commands& commands);
std::string zsh_completion(const Commands& commands);
std::string fish_completion(const Commands& commands);

}  // namespace lockstep::command
