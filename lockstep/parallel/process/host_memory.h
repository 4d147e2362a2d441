// Access to memory on the other hosts of a pool. Each host mirrors the pool's memory, region for
// region, in its own arena. Contents are copied only on request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/time_limit.h"

namespace lockstep::detail {

struct HostStatus {
  // Identifies the pool's current agent on this host; every new agent gets a higher number. The
  // memory of an earlier agent is lost. 0: there is no agent now.
  uint64_t presence = 0;
  std::string name, address = {};
  int cores = 1;
};

// Hosts are numbered from 1; 0 is this machine. Requests reach a host in order, and before messages
// that are sent to its workers later. Thread-safe.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // The host of the worker with this index, and its rank among the workers there.
  virtual int host_of(int slot) const = 0;
  virtual int local_rank_of(int slot) const = 0;
  virtual HostStatus status(int host) const = 0;
  // What a pool waits for until all hosts have joined, "Slurm: 1 of 2 hosts have joined", or "". Of
  // hosts that people start it has the command.
  virtual std::string waits_for() const = 0;
  virtual uint64_t presence(int host) const = 0;  // HostStatus::presence alone
  // Copies the present contents of a region to the host. Returns a number for pushed().
  virtual uint64_t push(int host, const SharedRange& range) = 0;
  // Whether the copy has arrived; false if the host is lost.
  virtual bool pushed(int host, uint64_t number) const = 0;
  // Copies the region's contents from the host to this machine. False if `presence` is no longer
  // current, and if nothing arrives for `patience` seconds.
  virtual bool pull(int host, uint64_t presence, const SharedRange& range, double patience) = 0;
  struct Pull {
    int host = 0;
    uint64_t presence = 0;
    SharedRange range;
  };
  // The same for short regions of many hosts at once, all within `patience` seconds.
  virtual std::vector<bool> pull_each(const std::vector<Pull>& pulls, double patience) = 0;
  // Copies the region's changes to this machine periodically. Data that a worker wrote is copied
  // before the worker's end is reported.
  virtual void watch(int host, const SharedRange& range) = 0;
  // Ends the LocalGroup in this region.
  virtual void end_group(int host, const SharedRange& range) = 0;
  // Says that no other host uses the region. No other host is then told when it is freed.
  virtual void belongs_to(int host, const SharedRange& range) = 0;
};

}  // namespace lockstep::detail
