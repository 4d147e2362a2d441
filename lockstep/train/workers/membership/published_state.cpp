#include "lockstep/train/workers/membership/published_state.h"

#include "lockstep/train/state/state_area.h"

namespace lockstep {

void PublishedState::begin(const Network& network, const Solver& solver, int64_t iteration) {
  const size_t bytes = state_bytes(network, solver);
  for (int i = 0; i < 2; ++i) {
    reserved_[i] = ReservedRange(memory_, bytes);
    ranges_[i] = *reserved_[i];
    regions_[i] = memory_.map(ranges_[i]);
  }
  write_state(network, solver, regions_[0].get());
  iteration_ = iteration;
}

void PublishedState::read(Network& network, Solver& solver) const {
  read_state(regions_[current_].get(), network, solver);
}

PublishOrder PublishedState::ask(uint32_t worker) {
  answer_.reset();
  asked_ = worker;
  return {1 - current_};
}

void PublishedState::take(uint32_t worker, const PublishedReport& r) {
  if (worker == asked_ && r.state == 1 - current_) answer_ = r.finished;
}

void PublishedState::accept() {
  current_ = 1 - current_;
  iteration_ = *answer_;
}

}  // namespace lockstep
