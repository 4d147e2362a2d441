// `lockstep cluster validate`: whether jobs can run with a profile, step by step.
#pragma once

#include <string>

namespace lockstep::command {

struct ValidationArguments {
  std::string name;       // of the profile, or the path of its file
  double patience = 120;  // seconds to wait for free nodes
  bool json = false;      // one object at the end instead of a line for each step
};

// Prints each step as it ends. Throws the error of the step that fails, after it has cancelled what
// it submitted and removed its files. Returns the exit code.
int validate_cluster(const ValidationArguments& arguments);

}  // namespace lockstep::command
