// The workers of a pool on other hosts. A thread has them, and stands in for their processes at the
// rings that these would have here.
#pragma once

#include <memory>
#include <string>

#include "lockstep/parallel/pool/host_memory.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/process_seat.h"

namespace lockstep::detail {

struct HostLineState;
struct HostsTold;

// Thread-safe. Numbers of workers are its own: above all of the pool's warden.
class HostLinks final : public HostMemory {
 public:
  // `bell`: where the pool's lies; `told`: by a thread, from begin() on. Keep the memory alive.
  // Throws InvalidArgument for hosts that cannot be.
  HostLinks(SharedMemory& memory, const SharedPlace& bell, const ProcessPoolOptions& options,
            HostsTold told);
  ~HostLinks() override;

  void begin();
  // Whether the worker with this index runs on another host.
  bool far(int seat) const { return host_of(seat) > 0; }
  void start(const SeatTicket& ticket);
  void kill(uint32_t worker, const std::string& reason);
  // Somebody has written to a ring of orders, or made room in one of reports.
  void ring();
  // The region was given back here.
  void forget(const SharedPlace& place);
  // Ends all; nothing is told afterwards. Not with anything locked that `told` locks.
  void stop();

  int host_of(int seat) const override;
  int slot_of(int seat) const override;
  HostStatus status(int host) const override;
  uint64_t push(int host, const SharedPlace& place) override;
  bool pushed(int host, uint64_t number) const override;
  bool pull(int host, uint64_t presence, const SharedPlace& place, double patience) override;
  void watch(int host, const SharedPlace& place) override;
  void end_group(int host, const SharedPlace& place) override;

 private:
  bool pull_part(int host, uint64_t presence, const SharedPlace& place, const TimeLimit& limit);

  std::unique_ptr<HostLineState> state_;
};

}  // namespace lockstep::detail
