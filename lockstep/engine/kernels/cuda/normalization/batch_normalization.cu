#include <cmath>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/reduction.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"

namespace lockstep::kernels::cuda {
namespace {

// Memory is a matrix of (observation, pixel) x channel.

// The parameters of one channel.
struct Channel {
  int64_t c;
  float mean, inverse_deviation, scale, shift;

  // The result before ReLU. Forward and backward must get the same bits, because its sign decides
  // what ReLU lets through. The explicit fma leaves the compiler no choice.
  __device__ float normalized(float x) const {
    return std::fma(x - mean, inverse_deviation * scale, shift);
  }
  __device__ float standardized(float x) const { return (x - mean) * inverse_deviation; }
};

struct Channels {
  const float *mean, *variance, *scale, *shift;
  float epsilon;
  int64_t count;

  __device__ Channel operator()(int64_t c) const {
    return {c, mean[c], 1.0f / std::sqrt(variance[c] + epsilon), scale[c], shift[c]};
  }
};

// Sum and sum of squares. In double the squares are exact, and the variance loses little precision
// as a difference.
template <class T>
struct Moments {
  const T* x;
  int64_t channels;
  __device__ int64_t column(int64_t c) const { return c; }
  __device__ Sums<2> operator()(int64_t c, int64_t row) const {
    const auto v = static_cast<double>(value_of(x[row * channels + c]));
    return {{v, v * v}};
  }
};

struct TakeMoments {
  double count;
  float *mean, *variance;
  __device__ void operator()(int64_t c, const Sums<2>& sums) const {
    const double m = sums.value[0] / count;
    const double v = sums.value[1] / count - m * m;
    mean[c] = static_cast<float>(m);
    variance[c] = static_cast<float>(v < 0 ? 0.0 : v);  // keeps NaN
  }
};

template <class T>
struct Apply {
  Channels channels;
  const T* x;
  T* y;
  bool relu;
  __device__ Channel column(int64_t c) const { return channels(c); }
  __device__ void operator()(const Channel& channel, int64_t row) const {
    const int64_t i = row * channels.count + channel.c;
    const float v = channel.normalized(value_of(x[i]));
    y[i] = rounded<T>(relu && v <= 0 ? 0.0f : v);  // keeps NaN
  }
};

// The gradient with respect to the input of ReLU.
__device__ float incoming(const Channel& channel, float x, float dy, bool relu) {
  return relu && channel.normalized(x) <= 0 ? 0.0f : dy;
}

// Summands of diff scale and diff shift.
template <class T>
struct Products {
  Channels channels;
  const T *x, *dy;
  bool relu;
  __device__ Channel column(int64_t c) const { return channels(c); }
  __device__ Sums<2> operator()(const Channel& channel, int64_t row) const {
    const int64_t i = row * channels.count + channel.c;
    const float v = value_of(x[i]);
    const auto g = static_cast<double>(incoming(channel, v, value_of(dy[i]), relu));
    return {{g * static_cast<double>(channel.standardized(v)), g}};
  }
};

template <class T>
struct ApplyBackward {
  Channels channels;
  const T *x, *dy;
  const float *diff_scale, *diff_shift;
  T* dx;
  float rows;
  bool relu, training;  // not training: mean and variance are constants
  struct State {
    Channel channel;
    float diff_scale, diff_shift;
  };
  __device__ State column(int64_t c) const { return {channels(c), diff_scale[c], diff_shift[c]}; }
  __device__ void operator()(const State& s, int64_t row) const {
    const int64_t i = row * channels.count + s.channel.c;
    const float v = value_of(x[i]);
    float g = incoming(s.channel, v, value_of(dy[i]), relu);
    if (training) g -= (s.diff_shift + s.channel.standardized(v) * s.diff_scale) / rows;
    dx[i] = rounded<T>(s.channel.scale * s.channel.inverse_deviation * g);
  }
};

template <class T>
Kernel normalization(const BatchNormalizationProblem& p) {
  const TensorSpec src = channels_last(p.src.shape, p.src.dtype);
  const int64_t channels = src.shape[1];
  const TensorSpec per_channel = plain_spec(Shape{channels});
  const auto epsilon = static_cast<float>(p.epsilon);
  const bool relu = p.relu, training = p.training;
  const ColumnCut cut(src.shape.elements() / channels, channels);

  std::vector<Operand> reads{input(0, src), input(1, per_channel), input(2, per_channel)};
  std::vector<Operand> writes{output(0, src)};
  std::vector<Operand> back_reads{input(0, src), diff_output(0, src), input(1, per_channel),
                                  input(2, per_channel)};
  auto& statistics = training ? writes : reads;
  for (int i = 0; i < 2; ++i) {
    const Operand o = training ? output(1 + i, per_channel) : input(3 + i, per_channel);
    statistics.push_back(o);
    back_reads.push_back(o);
  }
  Kernel kernel;
  kernel.forward = own_pass(
      reads, writes,
      [=](const Bound& b) {
        if (training) {
          launch_column_sums<2>(
              "batch normalization, moments", cut, Moments<T>{b.in<T>(0), channels},
              TakeMoments{static_cast<double>(cut.rows), b.out(1), b.out(2)}, b.scratch, b.stream);
        }
        const Channels of{training ? b.out(1) : b.in(3),
                          training ? b.out(2) : b.in(4),
                          b.in(1),
                          b.in(2),
                          epsilon,
                          channels};
        launch_each_of_columns("batch normalization", cut, b.stream,
                               Apply<T>{of, b.in<T>(0), b.out<T>(0), relu});
      },
      training ? cut.bytes(2) : 0);
  kernel.backward.push_back(own_pass(
      back_reads, {diff_input(0, src), diff_input(1, per_channel), diff_input(2, per_channel)},
      [=](const Bound& b) {
        const Channels of{b.in(4), b.in(5), b.in(2), b.in(3), epsilon, channels};
        launch_column_sums<2>("batch normalization, sums", cut,
                              Products<T>{of, b.in<T>(0), b.in<T>(1), relu},
                              TakeProducts{b.out(1), b.out(2)}, b.scratch, b.stream);
        launch_each_of_columns(
            "batch normalization, backward", cut, b.stream,
            ApplyBackward<T>{of, b.in<T>(0), b.in<T>(1), b.out(1), b.out(2), b.out<T>(0),
                             static_cast<float>(cut.rows), relu, training});
      },
      cut.bytes(2)));
  return kernel;
}

}  // namespace

Kernel batch_normalization(const BatchNormalizationProblem& p) {
  return for_elements(p.src.dtype, [&]<class T>(T) { return normalization<T>(p); });
}

}  // namespace lockstep::kernels::cuda
