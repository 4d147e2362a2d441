#include <cmath>

#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/reduction.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"

namespace lockstep::kernels::cuda {
namespace {

// Memory is a matrix of (observation, pixel) x channel. A thread takes P neighboring channels.

// What the results of P channels need.
template <int P>
struct Channels {
  float center[P], factor[P], shift[P];

  // The result before ReLU. Forward and backward must get the same bits, because its sign decides
  // what ReLU lets through. The explicit fma leaves the compiler no choice.
  __device__ float normalized(int k, float x) const {
    return std::fma(x - center[k], factor[k], shift[k]);
  }
  // The gradient with respect to the input of ReLU.
  __device__ float incoming(int k, float x, float dy, bool relu) const {
    return relu && normalized(k, x) <= 0 ? 0.0f : dy;
  }
};

// Constants of a channel, kept in the workspace for all passes. center + rest is the mean without
// the bias: with one float alone, a mean far from zero costs precision.
struct Constants {
  float center, rest, inverse_deviation;

  __device__ static Constants of(double mean, float variance, float epsilon) {
    const auto head = static_cast<float>(mean);
    return {head, static_cast<float>(mean - static_cast<double>(head)),
            1.0f / std::sqrt(variance + epsilon)};
  }
};

struct Statistics {
  const Constants* constants;
  const float *scale, *shift;

  template <int P>
  __device__ Channels<P> channels(int64_t c) const {
    Channels<P> of;
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      const Constants constant = constants[c + k];
      of.center[k] = constant.center;
      of.factor[k] = constant.inverse_deviation * scale[c + k];
      of.shift[k] = std::fma(-constant.rest, of.factor[k], shift[c + k]);
    }
    return of;
  }
};

// Of given statistics.
struct TakeStatistics {
  const float *mean, *variance, *bias;
  float epsilon;
  Constants* constants;
  __device__ void operator()(int64_t c) const {
    const double offset = bias ? static_cast<double>(bias[c]) : 0;
    constants[c] = Constants::of(static_cast<double>(mean[c]) - offset, variance[c], epsilon);
  }
};

// Rows of x, or of x and the gradient dy.
template <class T, int P>
struct Rows {
  int64_t channels;
  const T* x;
  bool aligned;
  __device__ Pack<T, P> load(int64_t c, int64_t row) const {
    return load_pack<P>(x + row * channels + c, aligned);
  }
};

template <class T, int P>
struct RowsWithGradients {
  int64_t channels;
  const T *x, *dy;
  bool aligned;
  struct Loaded {
    Pack<T, P> x, dy;
  };
  __device__ Loaded load(int64_t c, int64_t row) const {
    const int64_t i = row * channels + c;
    return {load_pack<P>(x + i, aligned), load_pack<P>(dy + i, aligned)};
  }
};

// Sum and sum of squares of the distances from the first element of a channel, whose variance loses
// little precision as a difference.
template <class T, int P>
struct Moments : Rows<T, P> {
  __device__ Pack<float, P> columns(int64_t c) const {
    const Pack<T, P> first = load_pack<P>(this->x + c, this->aligned);
    Pack<float, P> pivot;
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) pivot.element[k] = value_of(first.element[k]);
    return pivot;
  }
  __device__ void add(const Pack<float, P>& pivot, const Pack<T, P>& row,
                      Sums<2> (&sums)[P]) const {
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      const float v = value_of(row.element[k]) - pivot.element[k];
      sums[k].value[0] += v;
      sums[k].value[1] += v * v;
    }
  }
};

template <class T>
struct TakeMoments {
  double count;
  const T* x;
  const float* bias;
  float epsilon;
  float *mean, *variance;
  Constants* constants;
  __device__ void operator()(int64_t c, const Totals<2>& sums) const {
    const double distance = sums.value[0] / count;
    const double m = static_cast<double>(value_of(x[c])) + distance;
    const double v = sums.value[1] / count - distance * distance;
    mean[c] = static_cast<float>(bias ? m + static_cast<double>(bias[c]) : m);
    variance[c] = static_cast<float>(v < 0 ? 0.0 : v);  // keeps NaN
    constants[c] = Constants::of(m, variance[c], epsilon);
  }
};

template <class T, int P>
struct Apply : Rows<T, P> {
  Statistics statistics;
  T* y;
  bool relu;
  __device__ Channels<P> columns(int64_t c) const { return statistics.template channels<P>(c); }
  __device__ void store(const Channels<P>& of, Pack<T, P> v, int64_t c, int64_t row) const {
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      const float result = of.normalized(k, value_of(v.element[k]));
      v.element[k] = rounded<T>(relu && result <= 0 ? 0.0f : result);  // keeps NaN
    }
    store_pack<P>(v, y + row * this->channels + c, this->aligned);
  }
};

// Summands of diff scale, still to be divided by the deviation, and of diff shift.
template <class T, int P>
struct Products : RowsWithGradients<T, P> {
  Statistics statistics;
  bool relu;
  __device__ Channels<P> columns(int64_t c) const { return statistics.template channels<P>(c); }
  __device__ void add(const Channels<P>& of, const typename RowsWithGradients<T, P>::Loaded& at,
                      Sums<2> (&sums)[P]) const {
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      const float v = value_of(at.x.element[k]);
      const float g = of.incoming(k, v, value_of(at.dy.element[k]), relu);
      sums[k].value[0] += g * (v - of.center[k]);
      sums[k].value[1] += g;
    }
  }
};

struct TakeGradients {
  Statistics statistics;
  bool training;
  float *diff_scale, *diff_shift, *diff_bias;
  __device__ void operator()(int64_t c, const Totals<2>& sums) const {
    const Constants of = statistics.constants[c];
    const double inverse = static_cast<double>(of.inverse_deviation);
    const double products = sums.value[0] - static_cast<double>(of.rest) * sums.value[1];
    diff_scale[c] = static_cast<float>(products * inverse);
    diff_shift[c] = static_cast<float>(sums.value[1]);
    if (!diff_bias) return;
    const double factor = static_cast<double>(statistics.scale[c]) * inverse;
    diff_bias[c] = training ? 0.0f : static_cast<float>(sums.value[1] * factor);
  }
};

// dx = factor * (g - (offset + slope * (x - center))). Without `training` mean and variance are
// constants: dx = factor * g.
template <class T, int P>
struct ApplyBackward : RowsWithGradients<T, P> {
  Statistics statistics;
  const float *diff_scale, *diff_shift;
  T* dx;
  float rows;
  bool relu, training;
  struct Columns {
    Channels<P> channels;
    float offset[P], slope[P];
  };
  __device__ Columns columns(int64_t c) const {
    Columns of{statistics.template channels<P>(c), {}, {}};
    if (!training) return of;
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      const Constants constant = statistics.constants[c + k];
      of.slope[k] = diff_scale[c + k] * constant.inverse_deviation / rows;
      of.offset[k] = diff_shift[c + k] / rows - of.slope[k] * constant.rest;
    }
    return of;
  }
  __device__ void store(const Columns& of, const typename RowsWithGradients<T, P>::Loaded& at,
                        int64_t c, int64_t row) const {
    Pack<T, P> result;
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      const float v = value_of(at.x.element[k]);
      const float g = of.channels.incoming(k, v, value_of(at.dy.element[k]), relu);
      // 0 * x is not 0 for an infinite x.
      const float rest = training ? of.offset[k] + of.slope[k] * (v - of.channels.center[k]) : 0.0f;
      result.element[k] = rounded<T>(of.channels.factor[k] * (g - rest));
    }
    store_pack<P>(result, dx + row * this->channels + c, this->aligned);
  }
};

template <class T, int P>
Kernel normalization(const BatchNormalizationProblem& p) {
  const TensorSpec src = channels_last(p.src.shape, p.src.dtype);
  const int64_t channels = src.shape[1];
  const TensorSpec per_channel = plain_spec(Shape{channels});
  const auto epsilon = static_cast<float>(p.epsilon);
  const bool relu = p.relu, training = p.training, biased = p.bias;
  const ColumnCut cut(src.shape.elements() / channels, channels, P);
  const Operand constants = workspace(static_cast<size_t>(channels) * sizeof(Constants));

  std::vector<Operand> reads{input(0, src), input(1, per_channel), input(2, per_channel)};
  std::vector<Operand> writes{output(0, src), constants};
  for (int i = 0; i < 2; ++i) {
    if (training) {
      writes.push_back(output(1 + i, per_channel));
    } else {
      reads.push_back(input(3 + i, per_channel));
    }
  }
  std::vector<Operand> gradients{diff_input(0, src), diff_input(1, per_channel),
                                 diff_input(2, per_channel)};
  if (biased) {
    const int last = training ? 3 : 5;
    reads.push_back(input(last, per_channel));
    gradients.push_back(diff_input(last, per_channel));
  }
  Kernel kernel;
  kernel.forward = own_pass(
      reads, writes,
      [=](const Bound& b) {
        const T* const x = b.in<T>(0);
        T* const y = b.out<T>(0);
        auto* const kept = b.out<Constants>(1);
        const float* const bias = biased ? b.in(training ? 3 : 5) : nullptr;
        if (training) {
          launch_column_sums<P, 2>("batch normalization, moments", cut,
                                   Moments<T, P>{{channels, x, in_packs<P>(x)}},
                                   TakeMoments<T>{static_cast<double>(cut.rows), x, bias, epsilon,
                                                  b.out(2), b.out(3), kept},
                                   b.scratch, b.stream);
        } else {
          launch_each("batch normalization, statistics", channels, b.stream,
                      TakeStatistics{b.in(3), b.in(4), bias, epsilon, kept});
        }
        launch_each_of_columns("batch normalization", cut, b.stream,
                               Apply<T, P>{{channels, x, in_packs<P>(x) && in_packs<P>(y)},
                                           {kept, b.in(1), b.in(2)},
                                           y,
                                           relu});
      },
      training ? cut.bytes(2) : 0);
  kernel.backward.push_back(own_pass(
      {input(0, src), diff_output(0, src), input(1, per_channel), input(2, per_channel), constants},
      gradients,
      [=](const Bound& b) {
        const T *const x = b.in<T>(0), *const dy = b.in<T>(1);
        T* const dx = b.out<T>(0);
        const bool aligned = in_packs<P>(x) && in_packs<P>(dy);
        const Statistics of{b.in<Constants>(4), b.in(2), b.in(3)};
        launch_column_sums<P, 2>(
            "batch normalization, sums", cut, Products<T, P>{{channels, x, dy, aligned}, of, relu},
            TakeGradients{of, training, b.out(1), b.out(2), biased ? b.out(3) : nullptr}, b.scratch,
            b.stream);
        launch_each_of_columns("batch normalization, backward", cut, b.stream,
                               ApplyBackward<T, P>{{channels, x, dy, aligned && in_packs<P>(dx)},
                                                   of,
                                                   b.out(1),
                                                   b.out(2),
                                                   dx,
                                                   static_cast<float>(cut.rows),
                                                   relu,
                                                   training});
      },
      cut.bytes(2)));
  return kernel;
}

}  // namespace

Kernel batch_normalization(const BatchNormalizationProblem& p) {
  if (p.max_pool) throw Unsupported("[cuda] batch normalization has no maximum over windows");
  return for_elements(p.src.dtype, [&]<class T>(T) {
    return for_packs<T>(p.src.shape[1], [&]<class P>(P) { return normalization<T, P::value>(p); });
  });
}

}  // namespace lockstep::kernels::cuda
