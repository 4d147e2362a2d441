// The results of an iteration, on their way from the threads, device or worker that computed it.
#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/base/digest.h"

namespace lockstep {

// Positions in the mini-batch of the first and the last observation whose loss is not a finite
// number; -1: there is none.
struct LossesNotFinite {
  int64_t first = -1, last = -1;

  // Positions are added in their order.
  void add(int64_t begin, int64_t end) {
    if (begin < 0) return;
    if (first < 0) first = begin;
    last = end;
  }
};

// All but the times is the same for any number of threads and workers.
struct IterationOutcome {
  int64_t iteration = 0;
  int64_t epoch = 0, index = 0;  // of its mini-batch, from 0
  int64_t observations = 0;
  int64_t steps = 0;  // of its sequences; 0: no input is a sequence
  Digest observations_digest;
  double loss_sum = 0;  // over the terms
  // What the sum is divided by: observations, or the valid steps of sequences with targets by step.
  int64_t terms = 0;
  int64_t correct = 0;  // terms classified right, where labels are learned
  LossesNotFinite not_finite = {};
  // Of parameters and states afterwards. Where the loss is not a finite number, nothing was
  // applied and there is no digest.
  Digest digest;
  double seconds = 0;  // since the iteration before, or since begin_timing()
  // The steady clock, which all processes of a host share.
  std::chrono::steady_clock::time_point finished = {};

  template <class Archive>
  void serialize(Archive& archive) {
    auto ticks = finished.time_since_epoch().count();
    archive(iteration, epoch, index, observations, steps, observations_digest, loss_sum, terms,
            correct, not_finite.first, not_finite.last, digest, seconds, ticks);
    finished = decltype(finished)(std::chrono::steady_clock::duration(ticks));
  }
};

}  // namespace lockstep
