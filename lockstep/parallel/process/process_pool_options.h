// Number and location of a pool's worker processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
class HostStarter;
}

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
  // See HostProcessOptions; "": its default. Or "cluster NAME": by the profile of a cluster.
  std::string launch = {};
  std::shared_ptr<HostStarter> starter = {};  // set by make_process_pool() for a cluster
  std::string ports = {};                     // range of ports; "": of LOCKSTEP_PORTS
  // This machine's address or network interface, for the hosts; "": on the route to the first one.
  std::string address = {};
  bool same_processor = false;  // see HostProcessOptions
};
}  // namespace lockstep::detail
