// The login node of a cluster: over ssh, this command's own executable submits jobs there and acts
// on them. Nothing about a job is kept on this machine.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/cluster/profiles/cluster_profile.h"

namespace lockstep {

// The files of a command on the login node. They lie in a folder that is removed when the command
// ends. An argument "@/NAME" is the path of NAME in this folder.
struct LoginFiles {
  std::vector<std::pair<std::string, std::string>> texts = {};  // name and content
  // Name in the folder `attached` there, and file or folder here. Links are followed.
  std::vector<std::pair<std::string, std::string>> attached = {};
};

// All functions throw Error with what ssh says if the node cannot be reached or if it has no
// executable there, and FileError if its disk or its folder refuses the files. ssh must not ask for
// a password. A connection that is silent for half a minute is given up. One thread at a time.
class LoginNode {
 public:
  // The profile must have a login. A command ends with Cancelled if `stop_wanted` returns true.
  LoginNode(std::string name, ClusterProfile profile, std::function<bool()> stop_wanted = {});

  // If the profile's executable is "shipped": copies this one there, unless it is there already.
  void ship();
  // Runs the executable there, after ship(). Returns what it prints within 30 seconds.
  std::string output_of(const std::vector<std::string>& arguments);
  // The node's own name. Throws if the node cannot be reached.
  std::string host_name();

  // Runs `lockstep ARGUMENTS` there, with the standard output and errors of this process. Returns
  // its exit code.
  int run(const std::vector<std::string>& arguments);
  // The same with these files, and with the profile as PROFILE_NAME.toml, without its login and
  // with the executable there. Nothing is run unless all files have arrived. The command's working
  // folder remains.
  int run_with(const LoginFiles& files, const std::vector<std::string>& arguments);
  // Runs `lockstep ARGUMENTS --out FOLDER` there and copies this folder to `out`, which must not
  // exist or be empty. `out` appears whole or not at all. Returns the exit code, and whether it
  // first removed what an interrupted fetch to this folder had left.
  struct Fetched {
    int code = 0;
    bool removed_unfinished = false;
  };
  Fetched fetch(const std::vector<std::string>& arguments, const std::string& out);

  // "@/lab.toml"
  std::string profile_file() const { return "@/" + name_ + ".toml"; }

 private:
  std::string prologue() const;
  std::string in_new_folder() const;
  std::string command_line(const std::vector<std::string>& arguments) const;
  int checked(int code, const std::string& what) const;
  int connect(const std::string& script, int input, int output) const;

  const std::string name_;
  const ClusterProfile profile_;
  const std::function<bool()> stop_wanted_;
  std::string executable_;  // there; a shell expands "$base"
};

}  // namespace lockstep
