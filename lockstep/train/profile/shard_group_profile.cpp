#include "lockstep/train/profile/shard_group_profile.h"

namespace lockstep::detail {

void ShardGroupProfile::begin_call() {
  end_iteration();
  profiler.begin_iteration();
  under_way_ = true;
  complete_ = false;
}

void ShardGroupProfile::complete_call() {
  complete_ = true;
  if (++completed_ == 2) profiler.drop_earlier();
}

void ShardGroupProfile::end_iteration() {
  if (!under_way_) return;
  under_way_ = false;
  if (!complete_) return profiler.drop_iteration();
  profiler.charge(0, step.accounts.between);
  profiler.end_iteration();
}

}  // namespace lockstep::detail
