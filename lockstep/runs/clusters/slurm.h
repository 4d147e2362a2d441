// Slurm by its commands (20.11 and later), with formats that do not change between versions. Each
// command gets 30 seconds. All functions throw Error with the command's output if it fails or does
// not answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runs/clusters/cluster_profile.h"

namespace lockstep {

// What Slurm runs for a batch job.
struct SlurmScript {
  std::string name;     // of the job in Slurm's lists
  std::string output;   // file that its output is appended to
  std::string command;  // line of the shell that works on the job
  // Variables that the job needs. Nothing else of the environment is passed on, because Slurm
  // stores it.
  std::vector<std::pair<std::string, std::string>> environment;
};

// The text as one word of a shell: in single quotes. Never throws.
std::string shell_quoted(const std::string& text);

// The batch script: it may be started again (requeue), and the command gets SIGTERM two minutes
// before its time ends.
std::string slurm_script(const ClusterProfile& profile, const SlurmScript& script);

// Gives the script in a file to Slurm. Returns the number of Slurm's job.
std::string submit_to_slurm(const std::string& script_file);

// Slurm's state of a job, such as "PENDING", and its reason. The state is "" if Slurm does not know
// the job, which also means that it ended some time ago.
struct SlurmState {
  std::string state, reason;
  // Whether the job waits or runs, or will do so again.
  bool is_alive() const;
};
SlurmState slurm_state(const std::string& slurm_job);

void cancel_in_slurm(const std::string& slurm_job);
// Seconds until the time of a running job ends; infinity without a limit.
double time_left_in_slurm(const std::string& slurm_job);
// Has Slurm run the calling process's own job again.
void requeue_in_slurm(const std::string& slurm_job);

// The number of the Slurm job that this process belongs to, or "".
std::string current_slurm_job();

// In a job of Slurm: a training's `hosts`, of which this node is the first, as "localhost:2" and
// "n7:2".
std::vector<std::string> slurm_training_hosts(int64_t workers_per_node);
// The `host_launch` that starts a program on another node of the job.
std::string slurm_host_launch();

// Runs `command` on `nodes` nodes of the cluster, once on each, within `seconds`. Returns its
// output.
std::string run_on_slurm_nodes(const ClusterProfile& profile,
                               const std::vector<std::string>& command, double seconds);

// The version of Slurm, such as "slurm 22.05.8".
std::string slurm_version();

}  // namespace lockstep
