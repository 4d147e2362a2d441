// The profile of a custom loop: see ShardGroup::profile().
#pragma once

#include <cstdint>

#include "lockstep/train/profile/iteration_profile.h"

namespace lockstep::detail {

// An iteration lasts from one call of sharded_value_and_gradient() to the next, unless it is ended
// earlier. Accounts are opened between calls only, so plans that a call compiles are charged from
// the next call on.
class ShardGroupProfile {
 public:
  explicit ShardGroupProfile(int threads) : profiler(threads), step(profiler) {}

  // Begins a call and its iteration, and ends the iteration before.
  void begin_call();
  // The call has succeeded. The first such call is not counted unless it is the only one, because
  // it allocates memory and compiles plans.
  void complete_call();
  // Ends the current iteration, if there is one. Drops it if its call failed.
  void end_iteration();

  IterationProfiler profiler;
  IterationProfile step;

 private:
  bool under_way_ = false, complete_ = false;
  int64_t completed_ = 0;
};

}  // namespace lockstep::detail
