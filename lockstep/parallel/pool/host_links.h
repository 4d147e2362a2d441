// The workers of a pool on other hosts. A thread has them, and stands in for their processes at the
// rings that these would have here.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/parallel/pool/host_memory.h"
#include "lockstep/parallel/pool/process_warden.h"

namespace lockstep::detail {

// Thread-safe. Numbers of workers are its own: above all of the pool's warden.
class HostLinks final : public HostMemory {
 public:
  // What it tells, by its thread, from begin() on.
  struct Told {
    WardenReports reports;
    // What a worker had printed last, before its end is reported.
    std::function<void(uint32_t worker, std::string text)> printed;
    std::function<void()> rung;  // there are reports, or there is room for orders
  };
  // `bell`: where the pool's lies. Keep the memory alive. Throws InvalidArgument for hosts that
  // cannot be.
  HostLinks(SharedMemory& memory, const SharedPlace& bell, const ProcessPoolOptions& options,
            Told told);
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
  bool pull(int host, const SharedPlace& place, const TimeLimit& limit) override;
  void watch(int host, const SharedPlace& place) override;
  void end_group(int host, const SharedPlace& place) override;

 private:
  class Line;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::detail
