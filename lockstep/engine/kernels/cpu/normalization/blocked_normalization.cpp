#include "lockstep/engine/kernels/cpu/normalization/blocked_normalization.h"

#include <algorithm>
#include <cmath>

#include "lockstep/engine/kernels/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/normalization/blocked_normalization.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/normalization/channel_lanes.h"
#include "lockstep/engine/kernels/cpu/vector_elements.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kNothing = 255;  // mark of a result that depends on no element: ReLU made it 0

// Sums of up to this many elements are in f32; longer sums add those in double. A sequential sum in
// f32 loses a digit for every hundred elements or so.
constexpr int64_t kRun = 16;

// Two sums in double for each lane.
struct LongSums {
  double sums[2][16] = {};

  template <class D>
  HWY_INLINE void add(D d, hn::Vec<D> a, hn::Vec<D> b) {
    HWY_ALIGN float some[2][16];
    hn::Store(a, d, some[0]);
    hn::Store(b, d, some[1]);
    for (size_t i = 0; i < hn::MaxLanes(d); ++i) {
      sums[0][i] += static_cast<double>(some[0][i]);
      sums[1][i] += static_cast<double>(some[1][i]);
    }
  }
  // The rounded sums. With images in lanes, all lanes get the channel's total.
  template <class D>
  hn::Vec<D> get(const Lanes<D>& l, int which) const {
    HWY_ALIGN float some[16] = {};
    const auto lanes = hn::Lanes(l.d);
    if (l.images) {
      double all = 0;
      for (size_t i = 0; i < lanes; ++i) all += sums[which][i];
      return hn::Set(l.d, static_cast<float>(all));
    }
    for (size_t i = 0; i < lanes; ++i) some[i] = static_cast<float>(sums[which][i]);
    return hn::Load(l.d, some);
  }
};

// Mean and sum of squared deviations from the mean of `count` elements.
struct Moments {
  double count = 0, mean = 0, squares = 0;

  // Adds the moments of other elements (Chan, Golub, LeVeque 1979).
  void merge(const Moments& other) {
    const double all = count + other.count, apart = other.mean - mean;
    mean += apart * (other.count / all);
    squares += other.squares + apart * apart * (count * (other.count / all));
    count = all;
  }
};

// A number near each lane's mean: the mean of the first elements, cut to multiples of 2^-16 of the
// largest one's power of two, so that differences from it are mostly exact. With more bits, all
// differences would have the same rounding error.
template <class T, class D>
hn::Vec<D> center_of(const BlockedNormalization& p, const Lanes<D>& l, const T* plane) {
  constexpr int64_t kMost = 64;
  const int64_t count = std::min(kMost, p.rows * p.columns);
  auto sum = hn::Zero(l.d), largest = hn::Zero(l.d);
  for (int64_t i = 0; i < count; ++i) {
    const auto u = load(l.d, plane + i * p.block);
    sum = hn::Add(sum, u);
    largest = hn::Max(largest, hn::Abs(u));
  }
  const auto mean = hn::Mul(sum, hn::Set(l.d, 1 / static_cast<float>(count)));
  // The exponents differ by as many bits as the mean's significand loses.
  const hn::Rebind<int32_t, D> whole;
  const auto bits = hn::BitCast(whole, mean);
  const auto of_mean = hn::ShiftRight<23>(hn::BitCast(whole, hn::Abs(mean)));
  const auto lost =
      hn::Max(hn::Sub(hn::ShiftRight<23>(hn::BitCast(whole, largest)), of_mean), hn::Zero(whole));
  const auto most = hn::Set(whole, 15);
  const auto mask = hn::Shl(hn::Set(whole, ~0xff), hn::Min(lost, most));
  return hn::BitCast(l.d, hn::IfThenZeroElse(hn::Gt(lost, most), hn::And(bits, mask)));
}

// The mean's rounding to a float moves all results by the same amount. It counts only for means of
// this many deviations, squared; nearer means are used as they are.
constexpr double kFarMean = 16 * 16;

// Mean and variance in one pass over memory. Sums differences from a number near the mean, and
// their squares, to avoid cancellation.
template <class T, class D>
void statistics(const BlockedNormalization& p, const Lanes<D>& l, const Group& g, const T* x,
                float* means, float* variances, float* rests) {
  const D d = l.d;
  const int64_t positions = p.rows * p.columns, block = p.block, planes = planes_of(p, d);
  const auto center = center_of(p, l, x + plane_offset(p, d, 0, g));
  LongSums all;
  for (int64_t n = 0; n < planes; ++n) {
    const T* plane = x + plane_offset(p, d, n, g);
    for (int64_t begin = 0; begin < positions; begin += kRun) {
      const int64_t end = std::min(begin + kRun, positions);
      auto a = hn::Zero(d), b = hn::Zero(d), squares_a = hn::Zero(d), squares_b = hn::Zero(d);
      int64_t i = begin;
      for (; i + 2 <= end; i += 2) {
        const auto u = hn::Sub(load(d, plane + i * block), center);
        const auto v = hn::Sub(load(d, plane + (i + 1) * block), center);
        a = hn::Add(a, u);
        b = hn::Add(b, v);
        squares_a = hn::MulAdd(u, u, squares_a);
        squares_b = hn::MulAdd(v, v, squares_b);
      }
      if (i < end) {
        const auto u = hn::Sub(load(d, plane + i * block), center);
        a = hn::Add(a, u);
        squares_a = hn::MulAdd(u, u, squares_a);
      }
      all.add(d, hn::Add(a, b), hn::Add(squares_a, squares_b));
    }
  }
  HWY_ALIGN float centers[16];
  hn::Store(center, d, centers);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), first = first_channel(p, g);
  const auto count = static_cast<double>(planes * positions);
  const auto moments = [&](int64_t lane) {
    const double apart = all.sums[0][lane] / count;
    return Moments{count, static_cast<double>(centers[lane]) + apart,
                   all.sums[1][lane] - apart * all.sums[0][lane]};
  };
  const auto put = [&](const Moments& of, int64_t channel) {
    means[channel] = static_cast<float>(of.mean);
    // Rounding can give a negative number. NaN stays NaN.
    const double variance = of.squares < 0 ? 0.0 : of.squares / of.count;
    variances[channel] = static_cast<float>(variance);
    const bool far = of.mean * of.mean > kFarMean * (variance + static_cast<double>(p.epsilon));
    const double rest = of.mean - static_cast<double>(means[channel]);
    rests[channel] = far ? static_cast<float>(rest) : 0;
  };
  if (l.images) {
    Moments of = moments(0);
    for (int64_t lane = 1; lane < lanes; ++lane) of.merge(moments(lane));
    put(of, first);
  } else {
    for (int64_t i = 0; i < lanes && first + i < p.channels; ++i) put(moments(i), first + i);
  }
}

// The normalization of a group's elements.
template <class D>
struct Normalization {
  hn::Vec<D> mean, rest, inverse, factor, offset;  // inverse: 1 / sqrt(variance + epsilon)

  // `rests` may be null.
  Normalization(const BlockedNormalization& p, const Lanes<D>& l, const Group& g,
                const float* scale, const float* shift, const float* means, const float* variances,
                const float* rests) {
    const D d = l.d;
    const int64_t first = first_channel(p, g);
    const auto variance = l.load(variances, first, p.channels, 1);
    mean = l.load(means, first, p.channels);
    inverse = hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::Add(variance, hn::Set(d, p.epsilon))));
    factor = hn::Mul(l.load(scale, first, p.channels), inverse);
    offset = l.load(shift, first, p.channels);
    rest = rests ? l.load(rests, first, p.channels) : hn::Zero(d);
    // (u - mean - rest) * factor + offset.
    offset = hn::IfThenElse(near(), offset, hn::NegMulAdd(rest, factor, offset));
  }
  hn::Mask<D> near() const { return hn::Eq(rest, hn::Zero(D())); }
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> u) const {
    return hn::MulAdd(hn::Sub(u, mean), factor, offset);
  }
  // Whether ReLU makes the result 0. NaN stays NaN.
  HWY_INLINE hn::Mask<D> gone(hn::Vec<D> u) const { return hn::Le((*this)(u), hn::Zero(D())); }
};

// Rows and columns of a window, as compile-time constants; 0 means the problem's values.
template <int R, int C>
struct Window {
  static constexpr bool kMarked = R * C != 1;  // whether marks are stored
  int64_t rows, columns;
  explicit Window(const BlockedNormalization& p)
      : rows(R ? R : p.window_rows), columns(C ? C : p.window_columns) {}
  constexpr int64_t height() const { return R ? R : rows; }
  constexpr int64_t width() const { return C ? C : columns; }
};

// Sizes of images and results, copied and divided once. Otherwise the compiler would reload them,
// because stores may alias the problem.
struct Sizes {
  const int64_t rows, columns, block, result_rows, result_columns;
  const bool relu;

  explicit Sizes(const BlockedNormalization& p)
      : rows(p.rows),
        columns(p.columns),
        block(p.block),
        result_rows(p.result_rows()),
        result_columns(p.result_columns()),
        relu(p.relu) {}
};

template <class T, class W, class D>
void normalize_group(const BlockedNormalization& p, const W& w, const Lanes<D>& l, const Group& g,
                     const T* x, const float* scale, const float* shift, const float* mean,
                     const float* variance, const float* rest, T* y, uint8_t* marks) {
  const D d = l.d;
  const Sizes s(p);
  const int64_t row = s.columns * s.block;
  const Normalization<D> of(p, l, g, scale, shift, mean, variance, rest);
  const auto zero = hn::Zero(d);
  for (int64_t n = 0; n < planes_of(p, d); ++n) {
    const T* plane = x + plane_offset(p, d, n, g);
    int64_t to = result_offset(p, d, n, g);
    for (int64_t oy = 0; oy < s.result_rows; ++oy) {
      const T* from = plane + oy * w.height() * row;
      for (int64_t ox = 0; ox < s.result_columns; ++ox, to += s.block) {
        const auto value = [&](int64_t r, int64_t c) {
          return of(load(d, from + r * row + (ox * w.width() + c) * s.block));
        };
        auto best = value(0, 0);
        auto which = hn::Zero(l.whole);
        for (int64_t r = 0; r < w.height(); ++r) {
          for (int64_t c = r == 0 ? 1 : 0; c < w.width(); ++c) {
            const auto other = value(r, c);
            const auto more = hn::Gt(other, best);
            best = hn::IfThenElse(more, other, best);
            which =
                hn::IfThenElse(hn::RebindMask(l.whole, more),
                               hn::Set(l.whole, static_cast<int32_t>(r * w.width() + c)), which);
          }
        }
        if (s.relu) {
          // NaN stays NaN.
          const auto gone = hn::Le(best, zero);
          best = hn::IfThenElse(gone, zero, best);
          which = hn::IfThenElse(hn::RebindMask(l.whole, gone), hn::Set(l.whole, kNothing), which);
        }
        store(best, d, y + to);
        if constexpr (W::kMarked) hn::StoreU(hn::DemoteTo(l.bytes, which), l.bytes, marks + to);
      }
    }
  }
}

// Sums for the gradient through the statistics: of dy and of dy * (x - mean), over all lanes of a
// channel.
template <class T, class W, class D>
void backward_sums(const BlockedNormalization& p, const W& w, const Lanes<D>& l, const Group& g,
                   const T* x, const T* dy, const uint8_t* marks, const Normalization<D>& of,
                   hn::Vec<D>& sum, hn::Vec<D>& dot) {
  const D d = l.d;
  const Sizes s(p);
  const int64_t row = s.columns * s.block;
  LongSums all;
  for (int64_t n = 0; n < planes_of(p, d); ++n) {
    const T* plane = x + plane_offset(p, d, n, g);
    int64_t at = result_offset(p, d, n, g);
    for (int64_t oy = 0; oy < s.result_rows; ++oy) {
      const T* from = plane + oy * w.height() * row;
      for (int64_t begin = 0; begin < s.result_columns; begin += kRun) {
        const int64_t end = std::min(begin + kRun, s.result_columns);
        auto row_sum = hn::Zero(d), row_dot = hn::Zero(d);
        for (int64_t ox = begin; ox < end; ++ox, at += s.block) {
          const auto element = [&](int64_t r, int64_t c) {
            return load(d, from + r * row + (ox * w.width() + c) * s.block);
          };
          auto chosen = element(0, 0), diff = load(d, dy + at);
          if constexpr (W::kMarked) {
            const auto which = hn::PromoteTo(l.whole, hn::LoadU(l.bytes, marks + at));
            const auto gone = hn::RebindMask(d, hn::Eq(which, hn::Set(l.whole, kNothing)));
            diff = hn::IfThenZeroElse(gone, diff);
            for (int64_t r = 0; r < w.height(); ++r) {
              for (int64_t c = r == 0 ? 1 : 0; c < w.width(); ++c) {
                const auto it = hn::RebindMask(
                    d, hn::Eq(which, hn::Set(l.whole, static_cast<int32_t>(r * w.width() + c))));
                chosen = hn::IfThenElse(it, element(r, c), chosen);
              }
            }
          } else if (s.relu) {
            diff = hn::IfThenZeroElse(of.gone(chosen), diff);
          }
          row_sum = hn::Add(row_sum, diff);
          row_dot = hn::MulAdd(diff, hn::Sub(chosen, of.mean), row_dot);
        }
        all.add(d, row_sum, row_dot);
      }
    }
  }
  sum = all.get(l, 0);
  dot = all.get(l, 1);
}

template <class T, class W, class D>
void backward_group(const BlockedNormalization& p, const W& w, const Lanes<D>& l, const Group& g,
                    const T* x, const T* dy, const float* scale, const float* shift,
                    const float* mean, const float* variance, const float* rest,
                    const uint8_t* marks, T* dx, float* dscale, float* dshift) {
  const D d = l.d;
  const Sizes s(p);
  const int64_t first = first_channel(p, g), row = s.columns * s.block;
  const Normalization<D> of(p, l, g, scale, shift, mean, variance, rest);
  auto sum = hn::Zero(d), dot = hn::Zero(d);
  backward_sums(p, w, l, g, x, dy, marks, of, sum, dot);
  // The sum of dy * (x - mean - rest).
  dot = hn::IfThenElse(of.near(), dot, hn::NegMulAdd(of.rest, sum, dot));
  l.store(hn::Mul(dot, of.inverse), dscale, first, p.channels);
  l.store(sum, dshift, first, p.channels);

  // dx = factor * (dy - mean of dy - (x - mean) * inverse^2 * mean of dy * (x - mean)).
  auto constant = hn::Zero(d), slope = hn::Zero(d);
  if (p.training) {
    const auto share = hn::Set(d, 1 / static_cast<float>(p.n * p.rows * p.columns));
    constant = hn::Mul(sum, share);
    slope = hn::Mul(hn::Mul(dot, share), hn::Mul(of.inverse, of.inverse));
    constant = hn::IfThenElse(of.near(), constant, hn::NegMulAdd(of.rest, slope, constant));
  }
  const auto through_statistics = [&](hn::Vec<D> u) {
    return hn::NegMulAdd(hn::Sub(u, of.mean), slope, hn::Neg(constant));
  };
  // Given statistics do not depend on x. Their term must be left out, because x may be infinite and
  // 0 * x is NaN.
  const bool training = p.training;
  const auto put = [&](hn::Vec<D> own, hn::Vec<D> u, int64_t index) {
    const auto all = training ? hn::Add(own, through_statistics(u)) : own;
    store(hn::Mul(of.factor, all), d, dx + index);
  };
  for (int64_t n = 0; n < planes_of(p, d); ++n) {
    const int64_t begin = plane_offset(p, d, n, g);
    int64_t at = result_offset(p, d, n, g);
    for (int64_t oy = 0; oy < s.result_rows; ++oy) {
      const int64_t top = begin + oy * w.height() * row;
      for (int64_t ox = 0; ox < s.result_columns; ++ox, at += s.block) {
        const auto diff = load(d, dy + at);
        if constexpr (W::kMarked) {
          const auto which = hn::PromoteTo(l.whole, hn::LoadU(l.bytes, marks + at));
          for (int64_t r = 0; r < w.height(); ++r) {
            for (int64_t c = 0; c < w.width(); ++c) {
              const int64_t index = top + r * row + (ox * w.width() + c) * s.block;
              const auto it = hn::RebindMask(
                  d, hn::Eq(which, hn::Set(l.whole, static_cast<int32_t>(r * w.width() + c))));
              const auto own = hn::IfThenElseZero(it, diff);
              put(own, load(d, x + index), index);
            }
          }
        } else {
          const int64_t index = top + ox * s.block;
          const auto u = load(d, x + index);
          put(s.relu ? hn::IfThenZeroElse(of.gone(u), diff) : diff, u, index);
        }
      }
      for (int64_t r = 0; r < w.height(); ++r) {  // columns outside all windows
        for (int64_t c = s.result_columns * w.width(); c < s.columns; ++c) {
          const int64_t index = top + r * row + c * s.block;
          put(hn::Zero(d), load(d, x + index), index);
        }
      }
    }
    for (int64_t r = s.result_rows * w.height(); r < s.rows; ++r) {  // rows outside all windows
      for (int64_t c = 0; c < s.columns; ++c) {
        const int64_t index = begin + r * row + c * s.block;
        put(hn::Zero(d), load(d, x + index), index);
      }
    }
  }
}

// Common window sizes are compile-time constants.
template <class Call>
void with_window(const BlockedNormalization& p, const Call& call) {
  if (p.window_rows == 2 && p.window_columns == 2) {
    call(Window<2, 2>(p));
  } else if (p.window_rows == 1 && p.window_columns == 1) {
    call(Window<1, 1>(p));
  } else {
    call(Window<0, 0>(p));
  }
}

// Computes each group's statistics and results together, while its elements are in a cache.
void normalize_by_own(const BlockedNormalization& p, const void* x, const float* scale,
                      const float* shift, float* mean, float* variance, float* rest, void* y,
                      uint8_t* marks) {
  with_elements(p.dtype, [&]<class T>(T*) {
    with_window(p, [&](const auto& w) {
      with_lanes(p, [&](const auto& l, const Group& g) {
        statistics(p, l, g, static_cast<const T*>(x), mean, variance, rest);
        normalize_group(p, w, l, g, static_cast<const T*>(x), scale, shift, mean, variance, rest,
                        static_cast<T*>(y), marks);
      });
    });
  });
}

void normalize(const BlockedNormalization& p, const void* x, const float* scale, const float* shift,
               const float* mean, const float* variance, void* y, uint8_t* marks) {
  with_elements(p.dtype, [&]<class T>(T*) {
    with_window(p, [&](const auto& w) {
      with_lanes(p, [&](const auto& l, const Group& g) {
        normalize_group(p, w, l, g, static_cast<const T*>(x), scale, shift, mean, variance,
                        static_cast<const float*>(nullptr), static_cast<T*>(y), marks);
      });
    });
  });
}

void backward(const BlockedNormalization& p, const void* x, const void* dy, const float* scale,
              const float* shift, const float* mean, const float* variance, const float* rest,
              const uint8_t* marks, void* dx, float* dscale, float* dshift) {
  with_elements(p.dtype, [&]<class T>(T*) {
    with_window(p, [&](const auto& w) {
      with_lanes(p, [&](const auto& l, const Group& g) {
        backward_group(p, w, l, g, static_cast<const T*>(x), static_cast<const T*>(dy), scale,
                       shift, mean, variance, rest, marks, static_cast<T*>(dx), dscale, dshift);
      });
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(normalize_by_own);
HWY_EXPORT(normalize);
HWY_EXPORT(backward);

void blocked_normalization(const BlockedNormalization& p, const void* x, const float* scale,
                           const float* shift, float* mean, float* variance, float* rest, void* y,
                           uint8_t* marks) {
  HWY_DYNAMIC_DISPATCH(normalize_by_own)(p, x, scale, shift, mean, variance, rest, y, marks);
}

void blocked_normalization_with(const BlockedNormalization& p, const void* x, const float* scale,
                                const float* shift, const float* mean, const float* variance,
                                void* y, uint8_t* marks) {
  HWY_DYNAMIC_DISPATCH(normalize)(p, x, scale, shift, mean, variance, y, marks);
}

void blocked_normalization_backward(const BlockedNormalization& p, const void* x, const void* dy,
                                    const float* scale, const float* shift, const float* mean,
                                    const float* variance, const float* rest, const uint8_t* marks,
                                    void* dx, float* dscale, float* dshift) {
  HWY_DYNAMIC_DISPATCH(backward)
  (p, x, dy, scale, shift, mean, variance, rest, marks, dx, dscale, dshift);
}

}  // namespace lockstep::kernels::cpu
#endif
