// The definitions of the command line in the form that completion and manual need.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/command.h"

namespace lockstep::command {

struct Argument {
  std::vector<std::string> names;  // "-h", "--help"; a positional has one name
  std::string value;               // type name: "JOB", "N", "bash|zsh|fish"; "" for flags
  std::string help;
  bool required = false;
  bool many = false;  // several values in a row, or the option may be repeated
};

struct Definition {
  std::string name, purpose, details;
  std::vector<Argument> positionals, options;
  std::vector<Example> examples;
};

// All subcommands, in order.
std::vector<Definition> definitions(const Commands& commands);
// The options before the subcommand.
std::vector<Argument> global_options(const Commands& commands);

}  // namespace lockstep::command
