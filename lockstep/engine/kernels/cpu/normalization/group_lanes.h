// Group normalization of images in lanes: a vector holds the same element of 16 observations, so
// the statistics of 16 observations are summed at once. Thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/normalization/group_normalization.h"

namespace lockstep::kernels::cpu {

// Memory of all_channels() x space x n, n being a multiple of 16.
struct GroupLanes {
  int64_t n, groups, channels, space;  // `channels` of a group; `space`: rows times columns
  double epsilon;

  int64_t all_channels() const { return groups * channels; }
  int64_t elements() const { return channels * space; }
};

// `statistics`: n x groups.
void group_lanes_forward(const GroupLanes& p, const float* x, const float* scale,
                         const float* shift, float* y, GroupStatistics* statistics);

// `dscale` and `dshift`: all_channels(). `sums`: 2 doubles for each channel.
void group_lanes_backward(const GroupLanes& p, const float* x, const float* dy, const float* scale,
                          const GroupStatistics* statistics, float* dx, float* dscale,
                          float* dshift, double* sums);

}  // namespace lockstep::kernels::cpu
