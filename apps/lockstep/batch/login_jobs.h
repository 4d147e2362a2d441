// `submit`, `jobs` and `cluster validate` with a profile that has a login: the executable on the
// login node does their work.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep/batch/cluster_validation.h"

namespace lockstep::command {

// Whether `cluster` names a profile that has a login. False for "".
bool has_login(const std::string& cluster);

struct LoginSubmission {
  std::string cluster, job;
  std::vector<std::string> settings = {}, attach = {};
  std::string initial_model = {};         // a file that is sent along, or an address; or ""
  std::vector<std::string> options = {};  // of `submit`, such as --at-once
};

// Reads the job here, sends it with the attached files to the login node, and submits it there,
// where the command prints its number. Returns the exit code.
int submit_by_login(const LoginSubmission& submission);

// Runs `lockstep jobs ARGUMENTS` on the login node. With `out` the run is copied to this folder of
// this machine. Returns the exit code.
int jobs_by_login(const std::string& cluster, const std::vector<std::string>& arguments,
                  const std::string& out);

// Says that what a killed `jobs fetch` had left was removed.
void tell_of_unfinished_fetch(const std::string& out);

// Reaches the node, compares its executable with this one, and validates the profile from there.
int validate_by_login(const ValidationArguments& arguments);

}  // namespace lockstep::command
