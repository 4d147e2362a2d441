// Workers of a pool on other hosts, as pools know them. lockstep/cluster implements the interfaces,
// and Runtime sets them: what trains on one machine depends on nothing of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/process/host_memory.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/supervisor.h"

namespace lockstep::detail {

// The supervisor of a pool's workers on other hosts. Its worker numbers lie above those of the
// pool's local supervisor. Thread-safe.
class RemoteSupervisor : public Supervisor, public HostMemory {
 public:
  // Whether the worker with this index runs on another host.
  bool far(int slot) const { return host_of(slot) > 0; }
  // Must be called after writing to a slot's ring of orders, or making room in its ring of reports.
  virtual void ring(const SharedRange& slot) = 0;
  // The region was freed on this machine.
  virtual void forget(const SharedRange& range) = 0;
  // Copies a file or folder to where the hosts can read it, until stop(). Returns its path there,
  // or nothing if the hosts read it under its own path. Throws FileError.
  virtual std::optional<std::string> share(const std::string& path) = 0;
};

// A pool as the profile of a cluster describes it.
struct ClusterPool {
  ProcessPoolOptions options;
  std::vector<std::string> attach;  // files that every pool gets
};

// Thread-safe.
class HostSupport {
 public:
  virtual ~HostSupport() = default;
  // Workers, threads, hosts, launch and address of a pool on the cluster of this name. Throws
  // InvalidArgument for an unknown cluster and for a profile that does not fit.
  virtual ClusterPool cluster_pool(const std::string& cluster) const = 0;
  // Makes the supervisor of a pool with hosts or a launch. `bell`: the range of the pool's bell.
  // The memory must outlive it. With the launch "cluster NAME", what the profile sets is added to
  // `options`. Throws InvalidArgument for invalid hosts, and FileError.
  virtual std::unique_ptr<RemoteSupervisor> make_supervisor(SharedMemory& memory,
                                                            const SharedRange& bell,
                                                            ProcessPoolOptions& options,
                                                            SupervisorEvents events) const = 0;
};

// Sets what host_support() returns, for the rest of the program. Must be called before other
// threads are started.
void set_host_support(const HostSupport* support);
// Throws InvalidArgument if none is set.
const HostSupport& host_support();

}  // namespace lockstep::detail
