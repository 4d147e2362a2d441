// The hosts of a pool on the nodes of a cluster: Slurm starts them, and replaces those that are
// lost.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cluster/profiles/cluster_profile.h"
#include "lockstep/cluster/remote/host_starter.h"
#include "lockstep/parallel/process/process_pool_options.h"

namespace lockstep {

// A pool or training on a cluster, in the terms of their options.
struct ClusterLayout {
  std::vector<std::string> hosts;  // "lab-1:2", one for each node; none: this machine
  std::string launch;              // "cluster lab"; "": this machine
  std::string address;             // of this machine for the hosts
  int64_t workers = 1, threads = 1;
  std::string device;
  std::vector<std::string> attach;  // files that every pool gets
};

// The layout that the profile of this name describes. Throws what read_cluster_profile() throws,
// and InvalidArgument for more nodes than a pool can have hosts.
ClusterLayout cluster_layout(const std::string& cluster);

// The script that Slurm would get for the hosts of the profile. Words in capitals stand for values
// that are known only once a pool listens.
std::string cluster_hosts_script(const std::string& cluster);

// Each host is one job of an array, on one node. While the pool awaits a host, its job is submitted
// again when it has ended, and replaced when it runs without joining. Keys go through a file in a
// folder that the nodes share and other users cannot read. The jobs end with the pool. If this
// process is killed, running hosts end ten seconds later. The next pool of the user cancels jobs
// that still wait in Slurm; such a job also ends by itself once it gets a node.
class ClusterHosts final : public HostStarter {
 public:
  // `size`: the number of hosts. Throws Error if the folder cannot be made, InvalidArgument if
  // the profile does not fit.
  ClusterHosts(const std::string& cluster, const ClusterProfile& profile, int64_t size);
  ~ClusterHosts() override;

  const JobKey& key() const override;
  void begin(const std::string& address) override;
  void expect(int64_t index) override;
  void joined(int64_t index) override;
  std::string problem(int64_t index) override;
  std::string waits_for() override;
  std::string share(const std::string& path) override;
  void end() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// For a pool with the launch "cluster NAME": makes what starts its hosts, and sets their variables
// and ports. Null for another launch.
std::shared_ptr<HostStarter> make_host_starter(detail::ProcessPoolOptions& options);

}  // namespace lockstep
