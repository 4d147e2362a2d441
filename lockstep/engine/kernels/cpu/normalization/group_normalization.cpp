#include "lockstep/engine/kernels/normalization/group_normalization.h"

#include <algorithm>
#include <cmath>

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/normalization/group_lanes.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

// Row-major memory: the elements of an observation's group are contiguous, `space` for each of its
// `channels` channels.
struct Groups {
  int64_t n, groups, channels, space;
  double epsilon;

  int64_t all_channels() const { return groups * channels; }
  int64_t elements() const { return channels * space; }
};

// Number of lanes of a sum. Fixed, so that every instruction set gives the same bits.
constexpr size_t kLanesOfSums = 16;

double total(const double (&lanes)[kLanesOfSums]) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

LOCKSTEP_CLONES double sum_of(const float* x, size_t count) {
  double lanes[kLanesOfSums] = {};
  size_t i = 0;
  for (; i + kLanesOfSums <= count; i += kLanesOfSums) {
    for (size_t l = 0; l < kLanesOfSums; ++l) lanes[l] += static_cast<double>(x[i + l]);
  }
  for (size_t l = 0; i < count; ++i, ++l) lanes[l] += static_cast<double>(x[i]);
  return total(lanes);
}

LOCKSTEP_CLONES double sum_of_squares(const float* x, double mean, size_t count) {
  double lanes[kLanesOfSums] = {};
  size_t i = 0;
  for (; i + kLanesOfSums <= count; i += kLanesOfSums) {
    for (size_t l = 0; l < kLanesOfSums; ++l) {
      const double d = static_cast<double>(x[i + l]) - mean;
      lanes[l] += d * d;
    }
  }
  for (size_t l = 0; i < count; ++i, ++l) {
    const double d = static_cast<double>(x[i]) - mean;
    lanes[l] += d * d;
  }
  return total(lanes);
}

// Two passes: a difference of large sums is inaccurate for a mean far from zero.
GroupStatistics statistics_of(const float* x, const Groups& g) {
  const auto count = static_cast<size_t>(g.elements());
  const double mean = sum_of(x, count) / static_cast<double>(count);
  const double variance = sum_of_squares(x, mean, count) / static_cast<double>(count);
  const auto head = static_cast<float>(mean);
  return {head, static_cast<float>(mean - static_cast<double>(head)),
          static_cast<float>(1 / std::sqrt(variance + g.epsilon))};
}

inline float standardized(const GroupStatistics& s, float x) {
  return ((x - s.mean) - s.mean_rest) * s.inverse_deviation;
}

// Normalizes the elements of one channel.
LOCKSTEP_CLONES void apply(const GroupStatistics& s, float scale, float shift, const float* x,
                           float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = standardized(s, x[i]) * scale + shift;
}
// Normalizes one element of each channel.
LOCKSTEP_CLONES void apply(const GroupStatistics& s, const float* scale, const float* shift,
                           const float* x, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] = standardized(s, x[i]) * scale[i] + shift[i];
}

// Sums of dy times standardized x (scale), and of dy (shift).
struct Products {
  double scale = 0, shift = 0;
};

LOCKSTEP_CLONES Products products_of(const GroupStatistics& s, const float* x, const float* dy,
                                     size_t count) {
  double scale[kLanesOfSums] = {}, shift[kLanesOfSums] = {};
  size_t i = 0;
  for (; i + kLanesOfSums <= count; i += kLanesOfSums) {
    for (size_t l = 0; l < kLanesOfSums; ++l) {
      const auto d = static_cast<double>(dy[i + l]);
      scale[l] += d * static_cast<double>(standardized(s, x[i + l]));
      shift[l] += d;
    }
  }
  for (size_t l = 0; i < count; ++i, ++l) {
    const auto d = static_cast<double>(dy[i]);
    scale[l] += d * static_cast<double>(standardized(s, x[i]));
    shift[l] += d;
  }
  return {total(scale), total(shift)};
}

// The same sums weighted by `scale`, over a group with one element of each channel. Adds each
// channel's unweighted sums to `sums`.
LOCKSTEP_CLONES Products products_of(const GroupStatistics& s, const float* scale, const float* x,
                                     const float* dy, Products* sums, size_t count) {
  double scales[kLanesOfSums] = {}, shifts[kLanesOfSums] = {};
  for (size_t first = 0; first < count; first += kLanesOfSums) {
    const size_t lanes = std::min(kLanesOfSums, count - first);
    for (size_t l = 0; l < lanes; ++l) {
      const size_t i = first + l;
      const auto d = static_cast<double>(dy[i]);
      const double product = d * static_cast<double>(standardized(s, x[i]));
      sums[i].scale += product;
      sums[i].shift += d;
      scales[l] += product * static_cast<double>(scale[i]);
      shifts[l] += d * static_cast<double>(scale[i]);
    }
  }
  return {total(scales), total(shifts)};
}

// dx = (scale dy - mean(scale dy) - standardized x * mean(scale dy * standardized x)) / deviation.
LOCKSTEP_CLONES void apply_backward(const GroupStatistics& s, float scale, float mean_shift,
                                    float mean_scale, const float* x, const float* dy, float* dx,
                                    size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float g = dy[i] * scale - mean_shift - standardized(s, x[i]) * mean_scale;
    dx[i] = g * s.inverse_deviation;
  }
}
LOCKSTEP_CLONES void apply_backward(const GroupStatistics& s, const float* scale, float mean_shift,
                                    float mean_scale, const float* x, const float* dy, float* dx,
                                    size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float g = dy[i] * scale[i] - mean_shift - standardized(s, x[i]) * mean_scale;
    dx[i] = g * s.inverse_deviation;
  }
}

void forward(const Groups& p, const float* x, const float* scale, const float* shift, float* y,
             GroupStatistics* statistics) {
  const auto space = static_cast<size_t>(p.space);
  for (int64_t row = 0; row < p.n * p.groups; ++row) {
    const int64_t first = row % p.groups * p.channels;
    const GroupStatistics s = statistics[row] = statistics_of(x, p);
    if (p.space == 1) {
      apply(s, scale + first, shift + first, x, y, static_cast<size_t>(p.channels));
    } else {
      for (int64_t c = 0; c < p.channels; ++c) {
        apply(s, scale[first + c], shift[first + c], x + c * p.space, y + c * p.space, space);
      }
    }
    x += p.elements();
    y += p.elements();
  }
}

// `sums` has one element per channel.
void backward(const Groups& p, const float* x, const float* dy, const float* scale,
              const GroupStatistics* statistics, float* dx, float* dscale, float* dshift,
              Products* sums) {
  const auto space = static_cast<size_t>(p.space);
  const auto count = static_cast<double>(p.elements());
  std::fill_n(sums, p.all_channels(), Products{});
  for (int64_t row = 0; row < p.n * p.groups; ++row) {
    const int64_t first = row % p.groups * p.channels;
    const GroupStatistics& s = statistics[row];
    Products group;
    if (p.space == 1) {
      group = products_of(s, scale + first, x, dy, sums + first, static_cast<size_t>(p.channels));
    }
    for (int64_t c = 0; c < p.channels && p.space > 1; ++c) {
      const Products one = products_of(s, x + c * p.space, dy + c * p.space, space);
      sums[first + c].scale += one.scale;
      sums[first + c].shift += one.shift;
      group.scale += one.scale * static_cast<double>(scale[first + c]);
      group.shift += one.shift * static_cast<double>(scale[first + c]);
    }
    const auto mean_scale = static_cast<float>(group.scale / count);
    const auto mean_shift = static_cast<float>(group.shift / count);
    if (p.space == 1) {
      apply_backward(s, scale + first, mean_shift, mean_scale, x, dy, dx,
                     static_cast<size_t>(p.channels));
    } else {
      for (int64_t c = 0; c < p.channels; ++c) {
        const int64_t at = c * p.space;
        apply_backward(s, scale[first + c], mean_shift, mean_scale, x + at, dy + at, dx + at,
                       space);
      }
    }
    x += p.elements();
    dy += p.elements();
    dx += p.elements();
  }
  for (int64_t c = 0; c < p.all_channels(); ++c) {
    dscale[c] = static_cast<float>(sums[c].scale);
    dshift[c] = static_cast<float>(sums[c].shift);
  }
}

// Images in lanes stay there. Any other layout becomes row-major.
Kernel in_lanes_of(const GroupNormalizationProblem& p) {
  const TensorSpec& src = p.src;
  const int64_t n = src.shape[0], channels = src.shape[1];
  const TensorSpec per_channel = plain_spec(Shape{channels});
  const GroupLanes groups{n, p.groups, channels / p.groups, src.shape[2] * src.shape[3], p.epsilon};
  const Operand kept = workspace(static_cast<size_t>(n * p.groups) * sizeof(GroupStatistics));
  Kernel kernel;
  kernel.forward = own_pass({input(0, src), input(1, per_channel), input(2, per_channel)},
                            {output(0, src), kept},
                            [groups](void* const* r, void* const* w, const RandomContext&) {
                              group_lanes_forward(groups, in(r, 0), in(r, 1), in(r, 2), out(w, 0),
                                                  out<GroupStatistics>(w, 1));
                            });
  kernel.backward.push_back(own_pass_with_scratch(
      {input(0, src), diff_output(0, src), input(1, per_channel), kept},
      {diff_input(0, src), diff_input(1, per_channel), diff_input(2, per_channel)},
      static_cast<size_t>(2 * channels) * sizeof(double),
      [groups](void* const* r, void* const* w, void* scratch) {
        group_lanes_backward(groups, in(r, 0), in(r, 1), in(r, 2), in<GroupStatistics>(r, 3),
                             out(w, 0), out(w, 1), out(w, 2), static_cast<double*>(scratch));
      }));
  return kernel;
}

}  // namespace

Kernel group_normalization(const GroupNormalizationProblem& p) {
  // The kernel in lanes takes groups of 16 images; 8 in lanes (AVX2) become row-major.
  if (in_lanes(p.src) && p.src.dtype == DType::f32 && p.src.shape[0] % cpu::kLanes == 0) {
    return in_lanes_of(p);
  }
  const TensorSpec src = p.src.plain();
  const int64_t n = src.shape[0], channels = src.shape[1];
  const TensorSpec per_channel = plain_spec(Shape{channels});
  const Groups groups{n, p.groups, channels / p.groups, src.shape.elements() / (n * channels),
                      p.epsilon};
  const Operand kept = workspace(static_cast<size_t>(n * p.groups) * sizeof(GroupStatistics));
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, src), input(1, per_channel), input(2, per_channel)}, {output(0, src), kept},
      [groups](void* const* r, void* const* w, const RandomContext&) {
        forward(groups, in(r, 0), in(r, 1), in(r, 2), out(w, 0), out<GroupStatistics>(w, 1));
      });
  kernel.backward.push_back(own_pass_with_scratch(
      {input(0, src), diff_output(0, src), input(1, per_channel), kept},
      {diff_input(0, src), diff_input(1, per_channel), diff_input(2, per_channel)},
      static_cast<size_t>(channels) * sizeof(Products),
      [groups](void* const* r, void* const* w, void* scratch) {
        backward(groups, in(r, 0), in(r, 1), in(r, 2), in<GroupStatistics>(r, 3), out(w, 0),
                 out(w, 1), out(w, 2), static_cast<Products*>(scratch));
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
