// What the command line takes, for those who write it down: completion and manual.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/command.h"

namespace lockstep::command {

struct Argument {
  std::vector<std::string> names;  // "-h", "--help"; of positionals the one name
  std::string value;               // what it takes: "JOB", "N", "bash|zsh|fish"; "" for flags
  std::string help;
  bool required = false;
  bool many = false;  // several values in a row, or the option several times
};

struct Definition {
  std::string name, purpose, details;
  std::vector<Argument> positionals, options;
  std::vector<Example> examples;
};

// All subcommands, in order.
std::vector<Definition> definitions(const Commands& commands);
// The options in front of subcommands.
std::vector<Argument> global_options(const Commands& commands);

}  // namespace lockstep::command
