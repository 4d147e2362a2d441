// Number and location of a pool's worker processes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A host of a pool. "": this machine.
struct PoolHost {
  std::string name;
  int workers = 1;
};

struct ProcessPoolOptions {
  int workers = 1, threads = 1;  // on all hosts together; for each worker
  double grace = 5;
  uint64_t memory_bytes = 0;
  std::vector<std::pair<std::string, std::string>> environment = {};
  // Hosts in order of the workers' indexes; empty: all on this machine. A pool with hosts keeps its
  // size.
  std::vector<PoolHost> hosts = {};
  // The command that starts the hosts, or how they join; "": by ssh. Or "cluster NAME": by the
  // profile of a cluster.
  std::string launch = {};
  std::string ports = {};  // range of ports; "": of LOCKSTEP_PORTS
  // This machine's address or network interface, for the hosts; "": on the route to the first one.
  std::string address = {};
  bool same_processor = false;  // refuse hosts whose processor is of another model
};
}  // namespace lockstep::detail
