// Profiles of clusters, which users give to one another. What the checks let through is written
// into the script that Slurm gets.
#include "lockstep/cluster/profiles/cluster_profile.h"

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

ClusterProfile read(std::span<const std::byte> bytes) {
  static const Scratch folder;
  folder.write("p.toml", bytes);
  return read_cluster_profile_file(join_path(folder.path(), "p.toml"));
}

// Each line of the script is one that belongs to it: an option, a variable, or the command.
void check_script(const ClusterProfile& profile) {
  SlurmScript script;
  script.name = "job";
  script.output = "/out";
  script.command = "true";
  script.environment = profile.variables();
  std::istringstream lines(slurm_script(profile, script));
  size_t options = 0;
  for (std::string line; std::getline(lines, line);) {
    options += line.starts_with("#SBATCH ") ? 1 : 0;
    const bool known = line == "#!/bin/sh" || line == "exec true" ||
                       line.starts_with("#SBATCH --") || line.starts_with("#SBATCH -") ||
                       line.starts_with("export ");
    if (!known) throw InternalError("[fuzz] a line of its own in the script: " + line);
    if (line.starts_with("#SBATCH ") && line.find_first_of(" \t", 8) != std::string::npos) {
      throw InternalError("[fuzz] more than one option in a line: " + line);
    }
  }
  if (options < profile.options.size()) throw InternalError("[fuzz] options are lost");
}

constexpr const char* kProfile = R"toml(scheduler = "slurm"
login = "me@host"
partition = "debug"
workers = 16
nodes = 4
threads = 8
time_limit = "1-12:00:00"
options = ["--mem=32G", "-Cepyc", "--gres=gpu:2"]
environment = ["NCCL_SOCKET_IFNAME=ib0", "A=b c"]
attach = ["/a/b", "c"]
executable = "/opt/lockstep"
folder = "/shared/me"
address = "10.0.0.7"
ports = "20000-20100"
)toml";

}  // namespace

void parse(std::span<const std::byte> bytes) {
  const ClusterProfile profile = read(bytes);
  // What was read can be written and read again.
  const std::string text = cluster_profile_text(profile);
  if (cluster_profile_text(read(bytes_of(text))) != text) {
    throw InternalError("[fuzz] read back otherwise");
  }
  if (profile.scheduler == "slurm") check_script(profile);
}

std::vector<Bytes> seeds() {
  return {bytes_of(kProfile),
          bytes_of("scheduler = \"local\"\nworkers = 2\noptions = \"--mem=4G\"\n")};
}

}  // namespace lockstep::fuzz
