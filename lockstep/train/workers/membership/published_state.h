// The values of network and solver that a worker has written to memory shared with all workers.
// There are two regions: one has the valid values, the other gets the next ones.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// One thread at a time.
class PublishedState {
 public:
  explicit PublishedState(SharedMemory& memory) : memory_(memory) {}

  // Reserves both regions and writes the values, which are those after `iteration`.
  void begin(const Network& network, const Solver& solver, int64_t iteration);
  void read(Network& network, Solver& solver) const;
  const SharedRange (&ranges() const)[2] { return ranges_; }

  // The range of the valid values, and the iteration after which they are valid.
  int current() const { return current_; }
  const SharedRange& range() const { return ranges_[current_]; }
  int64_t iteration() const { return iteration_; }

  // The next values: asks a worker for them; notes its answer; makes them the valid ones.
  PublishOrder ask(uint32_t worker);
  void take(uint32_t worker, const PublishedReport& r);
  bool answered() const { return answer_.has_value(); }
  const SharedRange& next_range() const { return ranges_[1 - current_]; }
  void accept();

 private:
  SharedMemory& memory_;
  ReservedRange reserved_[2];
  SharedRange ranges_[2];
  SharedRegion regions_[2];
  int current_ = 0;
  int64_t iteration_ = 0;
  uint32_t asked_ = 0;             // the worker that was asked for its state
  std::optional<int64_t> answer_;  // the iteration of its values
};

}  // namespace lockstep
