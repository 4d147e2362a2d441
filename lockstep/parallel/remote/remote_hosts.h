// The workers of a pool on other hosts. A thread takes their place at the rings that local worker
// processes would use.
#pragma once

#include <memory>
#include <string>

#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/slot_memory.h"
#include "lockstep/parallel/remote/host_memory.h"

namespace lockstep::detail {

struct RemoteHostsState;
struct HostEvents;

// Thread-safe. Its worker numbers lie above those of the pool's supervisor.
class RemoteHosts final : public HostMemory {
 public:
  // `bell`: the place of the pool's bell. `told`: called by the thread, from begin() on. The memory
  // must outlive it. Throws InvalidArgument for invalid hosts.
  RemoteHosts(SharedMemory& memory, const SharedPlace& bell, const ProcessPoolOptions& options,
              HostEvents events);
  ~RemoteHosts() override;

  void begin();
  // Whether the worker with this index runs on another host.
  bool far(int slot) const { return host_of(slot) > 0; }
  void start(const SlotTicket& ticket);
  void kill(uint32_t worker, const std::string& reason);
  // Must be called after writing to a ring of orders, or making room in a ring of reports.
  void ring();
  // The region was freed on this machine.
  void forget(const SharedPlace& place);
  // Ends all workers; nothing is reported afterwards. The caller must not hold a mutex that `told`
  // locks.
  void stop();

  int host_of(int slot) const override;
  int local_rank_of(int slot) const override;
  HostStatus status(int host) const override;
  uint64_t push(int host, const SharedPlace& place) override;
  bool pushed(int host, uint64_t number) const override;
  bool pull(int host, uint64_t presence, const SharedPlace& place, double patience) override;
  void watch(int host, const SharedPlace& place) override;
  void end_group(int host, const SharedPlace& place) override;

 private:
  bool pull_part(int host, uint64_t presence, const SharedPlace& place, const TimeLimit& limit);

  std::unique_ptr<RemoteHostsState> state_;
};

}  // namespace lockstep::detail
