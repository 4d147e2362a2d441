// The nodes of a cluster that Slurm manages, for `lockstep cluster validate`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cluster/profiles/cluster_profile.h"

namespace lockstep::command {

constexpr double slurm_node_limit = 60;  // seconds for the nodes to answer

// "n1, n2"
std::string comma_list(const std::vector<std::string>& words);

// "2 of 3 nodes of the partition debug can work". Throws InvalidArgument if the profile's partition
// has no nodes, Error if too few can work, and what Slurm's commands throw.
std::string count_usable_nodes(const ClusterProfile& profile);

struct NodeAnswer {
  std::string node, text;
  int code = 0;
};

// A job of Slurm that holds nodes. It is cancelled at the end of its life. All functions throw
// Error with what Slurm says, and Cancelled if the process was asked to end.
class NodeHolder {
 public:
  NodeHolder() = default;
  ~NodeHolder();
  NodeHolder(const NodeHolder&) = delete;
  NodeHolder& operator=(const NodeHolder&) = delete;

  void submit(const ClusterProfile& profile);
  // Returns the names of its nodes. Throws Timeout after `patience` seconds.
  std::vector<std::string> wait_until_it_runs(double patience);
  void cancel();
  const std::string& number() const { return number_; }

  // The beginning of a command (srun) that runs a program on `nodes` of the job's nodes.
  std::vector<std::string> step(size_t nodes) const;
  // Runs a program once on each of the nodes. Throws if a node does not answer.
  std::vector<NodeAnswer> ask(const std::vector<std::string>& nodes,
                              const std::vector<std::string>& program) const;

 private:
  std::string number_;
};

}  // namespace lockstep::command
