// What can be done about memory on the other hosts of a pool: each mirrors the pool's own, region
// for region, in arenas of their own; contents travel only where somebody asks for it.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/shared_memory.h"
#include "lockstep/base/time_limit.h"

namespace lockstep::detail {

struct HostStatus {
  // Counts the processes that have stood for the pool there; what an earlier one had is gone. 0:
  // none is there now.
  uint64_t presence = 0;
  std::string name, address = {};
  int cores = 1;
};

// Hosts have numbers from 1; 0 is this machine. What is asked of a host comes there in order, and
// before messages to its workers that are sent later. Thread-safe.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Where the worker with this index runs, and how many before it run there.
  virtual int host_of(int seat) const = 0;
  virtual int slot_of(int seat) const = 0;
  virtual HostStatus status(int host) const = 0;
  // The present contents of a region go there. Returns what pushed() takes.
  virtual uint64_t push(int host, const SharedPlace& place) = 0;
  // Whether it has arrived; false where the host is lost.
  virtual bool pushed(int host, uint64_t number) const = 0;
  // The contents there become those here, if that presence still is. False where it is not, and
  // where nothing comes for so many seconds.
  virtual bool pull(int host, uint64_t presence, const SharedPlace& place, double patience) = 0;
  // What changes there comes here now and then, and what a worker wrote before its end is told.
  virtual void watch(int host, const SharedPlace& place) = 0;
  // Ends the LocalGroup that lies there.
  virtual void end_group(int host, const SharedPlace& place) = 0;
};

}  // namespace lockstep::detail
