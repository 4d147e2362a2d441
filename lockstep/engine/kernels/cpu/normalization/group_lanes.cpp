#include "lockstep/engine/kernels/cpu/normalization/group_lanes.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"

namespace lockstep::kernels::cpu {
namespace {

// Sums of adjacent elements of a channel are independent, so that an addition does not wait for the
// one before it. Their number is fixed: every instruction set gives the same bits.
constexpr int64_t kParts = 4;

struct Lanes {
  double of[kLanes] = {};
};

// The sums that are added up in the end.
struct Parts {
  Lanes part[kParts];

  LOCKSTEP_INLINE Lanes total() const {
    Lanes sum;
    for (int64_t l = 0; l < kLanes; ++l) {
      sum.of[l] = (part[0].of[l] + part[1].of[l]) + (part[2].of[l] + part[3].of[l]);
    }
    return sum;
  }
};

// The statistics of a group of 16 observations.
struct GroupOf16 {
  float mean[kLanes], mean_rest[kLanes], inverse_deviation[kLanes];

  LOCKSTEP_INLINE float standardized(int64_t l, float x) const {
    return ((x - mean[l]) - mean_rest[l]) * inverse_deviation[l];
  }
};

// Adds term(x, lane) for all lanes of all positions of the group's channels.
template <class Term>
LOCKSTEP_INLINE Lanes sum_of(const GroupLanes& p, const float* x, const Term& term) {
  const int64_t n = p.n, space = p.space;
  Parts sums;
  for (int64_t c = 0; c < p.channels; ++c) {
    for (int64_t s = 0; s < space; ++s, x += n) {
      double* const part = sums.part[s % kParts].of;
#pragma GCC ivdep
      for (int64_t l = 0; l < kLanes; ++l) part[l] += term(x[l], l);
    }
  }
  return sums.total();
}

// Two passes: a difference of large sums is inaccurate for a mean far from zero.
LOCKSTEP_CLONES void statistics_of(const GroupLanes& p, const float* x, GroupOf16& group) {
  const auto count = static_cast<double>(p.elements());
  Lanes mean = sum_of(p, x, [](float v, int64_t) { return static_cast<double>(v); });
  for (double& m : mean.of) m /= count;
  const Lanes squares = sum_of(p, x, [mean](float v, int64_t l) {
    const double d = static_cast<double>(v) - mean.of[l];
    return d * d;
  });
  for (int64_t l = 0; l < kLanes; ++l) {
    group.mean[l] = static_cast<float>(mean.of[l]);
    group.mean_rest[l] = static_cast<float>(mean.of[l] - static_cast<double>(group.mean[l]));
    group.inverse_deviation[l] =
        static_cast<float>(1 / std::sqrt(squares.of[l] / count + p.epsilon));
  }
}

LOCKSTEP_CLONES void apply(const GroupLanes& p, const GroupOf16& group, const float* scale,
                           const float* shift, const float* x, float* y) {
  for (int64_t c = 0; c < p.channels; ++c) {
    for (int64_t s = 0; s < p.space; ++s, x += p.n, y += p.n) {
#pragma GCC ivdep
      for (int64_t l = 0; l < kLanes; ++l) {
        y[l] = group.standardized(l, x[l]) * scale[c] + shift[c];
      }
    }
  }
}

// Sums of dy times standardized x (scale) and of dy (shift): adds those of a channel over all 16
// observations to sums[2 c] and sums[2 c + 1], and those of an observation, weighted by the
// channels' scales, to `scales` and `shifts`.
LOCKSTEP_CLONES void products_of(const GroupLanes& p, const GroupOf16& group, const float* scale,
                                 const float* x, const float* dy, double* sums, Lanes& scales,
                                 Lanes& shifts) {
  for (int64_t c = 0; c < p.channels; ++c) {
    const int64_t first = c * p.space * p.n;
    Parts with_x, alone;
    for (int64_t s = 0; s < p.space; ++s) {
      const int64_t at = first + s * p.n;
      Lanes &product = with_x.part[s % kParts], &plain = alone.part[s % kParts];
      for (int64_t l = 0; l < kLanes; ++l) {
        const auto d = static_cast<double>(dy[at + l]);
        product.of[l] += d * static_cast<double>(group.standardized(l, x[at + l]));
        plain.of[l] += d;
      }
    }
    const Lanes product = with_x.total(), plain = alone.total();
    const auto weight = static_cast<double>(scale[c]);
    for (int64_t l = 0; l < kLanes; ++l) {
      sums[2 * c] += product.of[l];
      sums[2 * c + 1] += plain.of[l];
      scales.of[l] += product.of[l] * weight;
      shifts.of[l] += plain.of[l] * weight;
    }
  }
}

// dx = (scale dy - mean(scale dy) - standardized x * mean(scale dy * standardized x)) / deviation.
LOCKSTEP_CLONES void apply_backward(const GroupLanes& p, const GroupOf16& group, const float* scale,
                                    const float* mean_scale, const float* mean_shift,
                                    const float* x, const float* dy, float* dx) {
  for (int64_t c = 0; c < p.channels; ++c) {
    for (int64_t s = 0; s < p.space; ++s, x += p.n, dy += p.n, dx += p.n) {
#pragma GCC ivdep
      for (int64_t l = 0; l < kLanes; ++l) {
        const float g =
            dy[l] * scale[c] - mean_shift[l] - group.standardized(l, x[l]) * mean_scale[l];
        dx[l] = g * group.inverse_deviation[l];
      }
    }
  }
}

}  // namespace

void group_lanes_forward(const GroupLanes& p, const float* x, const float* scale,
                         const float* shift, float* y, GroupStatistics* statistics) {
  for (int64_t first = 0; first < p.n; first += kLanes) {
    for (int64_t g = 0; g < p.groups; ++g) {
      const int64_t at = g * p.elements() * p.n + first, channel = g * p.channels;
      GroupOf16 group;
      statistics_of(p, x + at, group);
      for (int64_t l = 0; l < kLanes; ++l) {
        statistics[(first + l) * p.groups + g] = {group.mean[l], group.mean_rest[l],
                                                  group.inverse_deviation[l]};
      }
      apply(p, group, scale + channel, shift + channel, x + at, y + at);
    }
  }
}

void group_lanes_backward(const GroupLanes& p, const float* x, const float* dy, const float* scale,
                          const GroupStatistics* statistics, float* dx, float* dscale,
                          float* dshift, double* sums) {
  const auto count = static_cast<double>(p.elements());
  std::fill_n(sums, 2 * p.all_channels(), 0.0);
  for (int64_t first = 0; first < p.n; first += kLanes) {
    for (int64_t g = 0; g < p.groups; ++g) {
      const int64_t at = g * p.elements() * p.n + first, channel = g * p.channels;
      GroupOf16 group;
      for (int64_t l = 0; l < kLanes; ++l) {
        const GroupStatistics& s = statistics[(first + l) * p.groups + g];
        group.mean[l] = s.mean;
        group.mean_rest[l] = s.mean_rest;
        group.inverse_deviation[l] = s.inverse_deviation;
      }
      Lanes scales, shifts;
      products_of(p, group, scale + channel, x + at, dy + at, sums + 2 * channel, scales, shifts);
      float mean_scale[kLanes], mean_shift[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) {
        mean_scale[l] = static_cast<float>(scales.of[l] / count);
        mean_shift[l] = static_cast<float>(shifts.of[l] / count);
      }
      apply_backward(p, group, scale + channel, mean_scale, mean_shift, x + at, dy + at, dx + at);
    }
  }
  for (int64_t c = 0; c < p.all_channels(); ++c) {
    dscale[c] = static_cast<float>(sums[2 * c]);
    dshift[c] = static_cast<float>(sums[2 * c + 1]);
  }
}

}  // namespace lockstep::kernels::cpu
