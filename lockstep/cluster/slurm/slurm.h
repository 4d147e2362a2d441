// Slurm by its commands (20.11 and later), with formats that do not change between versions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/profiles/cluster_profile.h"

namespace lockstep {

// Throws InvalidArgument for variables whose names are those of secrets, such as
// AWS_SECRET_ACCESS_KEY or MY_TOKEN: what a scheduler gets, others can read.
void refuse_secrets(const std::vector<std::pair<std::string, std::string>>& environment);

// Throws InvalidArgument for the path of a job's file or folder that Slurm cannot use: with a
// blank, a quote, a backslash or "%".
void check_slurm_path(const std::string& path);

// What Slurm runs for a batch job.
struct SlurmScript {
  std::string name;     // of the job in Slurm's lists
  std::string output;   // file that its output is appended to
  std::string command;  // line of the shell that works on the job
  // Variables that the job needs. Nothing else of the environment is passed on, because Slurm
  // stores it.
  std::vector<std::pair<std::string, std::string>> environment;
};

// What Slurm runs for the hosts of a pool: an array of jobs, one for each host, which are started,
// requeued and replaced one by one.
struct SlurmHosts {
  std::string name;    // of the jobs in Slurm's lists
  std::string output;  // file that a host's output is appended to; "%a" stands for the host's index
  std::vector<std::string> command;  // of a host, without its index and number
  std::vector<int64_t> indexes;      // of the hosts to start
  int64_t size = 1;                  // number of all hosts
  // Must not hold secrets, see refuse_secrets().
  std::vector<std::pair<std::string, std::string>> environment;
};

// The script of the hosts. A host gets SIGUSR2 two minutes before its time ends. Throws
// InvalidArgument for an environment that seems to hold secrets.
std::string slurm_hosts_script(const ClusterProfile& profile, const SlurmHosts& hosts);

// The script of a job that holds the profile's nodes for `seconds`. Slurm does not start the job
// again.
std::string slurm_holder_script(const ClusterProfile& profile, const std::string& name,
                                int seconds);

// The batch script: it may be started again (requeue), and the command gets SIGUSR2 two minutes
// before its time ends.
std::string slurm_script(const ClusterProfile& profile, const SlurmScript& script);

// Slurm's state of a job, such as "PENDING", and its reason. The state is "" if Slurm does not know
// the job, which also means that it ended some time ago.
struct SlurmState {
  std::string state, reason;
  // Whether the job waits or runs, or will do so again.
  bool is_alive() const;
  // Whether Slurm holds the job because its node failed to launch it. It then starts no more unless
  // it is released.
  bool is_held_after_launch() const;
};

// `address` is Slurm's NodeAddr, which need not be the name.
struct SlurmNode {
  std::string name, address;
};

// One of the jobs of an array.
struct SlurmElement {
  std::string job;    // "17_2"
  int64_t index = 0;  // 2
  SlurmState state;
};

// The commands of a Slurm, run here or on a login node. Each gets 30 seconds. All functions throw
// Error with the command's output if it fails, Timeout if it does not answer. Thread-safe.
class Slurm {
 public:
  // "user@host": by ssh.
  explicit Slurm(std::string login = {}) : login_(std::move(login)) {}

  // Gives the text of a script to Slurm. Returns the number of Slurm's job.
  std::string submit(const std::string& script) const;
  // The states of this user's jobs by their numbers, also of those that have ended lately.
  std::map<std::string, SlurmState> own_jobs() const;
  // The elements of all arrays of this name that Slurm knows, also those that have ended lately.
  std::vector<SlurmElement> elements(const std::string& name) const;
  void cancel(const std::vector<std::string>& jobs) const;
  // Cancels all jobs of this name, which may be none.
  void cancel_all(const std::string& name) const;
  // The nodes in the profile's partition.
  std::vector<SlurmNode> nodes(const ClusterProfile& profile) const;
  // Seconds until the time of a running job ends; infinity without a limit.
  double time_left(const std::string& job) const;
  // Has Slurm start again the job that the calling process belongs to.
  void requeue(const std::string& job) const;
  // Lets a job start that is held.
  void release(const std::string& job) const;
  // The names in a list of nodes, such as "n[1-3]".
  std::vector<std::string> node_names(const std::string& list) const;
  // Such as "slurm 22.05.8".
  std::string version() const;

 private:
  // By jobs, of those that options of squeue choose.
  std::map<std::string, SlurmState> states(const std::vector<std::string>& options) const;
  std::string output_of(const std::vector<std::string>& command, double seconds,
                        const std::string& input = {}) const;

  std::string login_;
};

// The number of the Slurm job that this process belongs to, or "".
std::string current_slurm_job();

// In a job of Slurm: a training's `hosts`, of which this node is the first, as "localhost:2" and
// "n7:2". Throws as Slurm's functions do, and InvalidArgument outside of a job.
std::vector<std::string> slurm_training_hosts(int64_t workers_per_node);
// The `host_launch` that starts a program on another node of the job.
std::string slurm_host_launch();

}  // namespace lockstep
