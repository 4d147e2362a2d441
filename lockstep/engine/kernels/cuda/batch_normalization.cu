#include <cmath>

#include "lockstep/engine/kernels/batch_normalization.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/reduction.h"

namespace lockstep::kernels::cuda {
namespace {

// Memory is a matrix of (observation, pixel) x channel. What a channel is normalised with:
struct Statistics {
  const float *mean, *variance;
  float epsilon;

  __device__ float inverse_deviation(int64_t c) const {
    return 1.0f / std::sqrt(variance[c] + epsilon);
  }
};

// The result before ReLU. Forward and backward call it with the same numbers and must get the same
// bits, since its sign says what ReLU lets through; hence the fma, which leaves no choice.
__device__ float normalized(float x, float mean, float inverse_deviation, float scale,
                            float shift) {
  return std::fma(x - mean, inverse_deviation * scale, shift);
}

// Sum and sum of squares; in double the products are exact and little is lost in the difference
// that is the variance.
struct Moments {
  const float* x;
  int64_t channels;
  __device__ Sums<2> operator()(int64_t row, int64_t c) const {
    const auto v = static_cast<double>(x[row * channels + c]);
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
    variance[c] = static_cast<float>(v < 0 ? 0.0 : v);  // NaN stays
  }
};

struct Apply {
  Statistics s;
  const float *x, *scale, *shift;
  float* y;
  int64_t channels;
  bool relu;
  __device__ void operator()(int64_t i) const {
    const int64_t c = divide(i, channels).remainder;
    const float v = normalized(x[i], s.mean[c], s.inverse_deviation(c), scale[c], shift[c]);
    y[i] = relu && v <= 0 ? 0.0f : v;  // NaN stays
  }
};

// The gradient with respect to what ReLU was given.
struct Incoming {
  Statistics s;
  const float *x, *dy, *scale, *shift;
  bool relu;
  __device__ float operator()(int64_t i, int64_t c) const {
    if (!relu) return dy[i];
    const float v = normalized(x[i], s.mean[c], s.inverse_deviation(c), scale[c], shift[c]);
    return v <= 0 ? 0.0f : dy[i];
  }
  __device__ float standardized(int64_t i, int64_t c) const {
    return (x[i] - s.mean[c]) * s.inverse_deviation(c);
  }
};

// Summands of diff scale and diff shift.
struct Products {
  Incoming in;
  int64_t channels;
  __device__ Sums<2> operator()(int64_t row, int64_t c) const {
    const int64_t i = row * channels + c;
    const auto g = static_cast<double>(in(i, c));
    return {{g * static_cast<double>(in.standardized(i, c)), g}};
  }
};

struct TakeProducts {
  float *diff_scale, *diff_shift;
  __device__ void operator()(int64_t c, const Sums<2>& sums) const {
    diff_scale[c] = static_cast<float>(sums.value[0]);
    diff_shift[c] = static_cast<float>(sums.value[1]);
  }
};

struct ApplyBackward {
  Incoming in;
  const float *diff_scale, *diff_shift;
  float* dx;
  int64_t channels;
  float count;
  bool training;  // else mean and variance do not depend on x
  __device__ void operator()(int64_t i) const {
    const int64_t c = divide(i, channels).remainder;
    float g = in(i, c);
    if (training) g -= (diff_shift[c] + in.standardized(i, c) * diff_scale[c]) / count;
    dx[i] = in.scale[c] * in.s.inverse_deviation(c) * g;
  }
};

}  // namespace

Kernel batch_normalization(const BatchNormalizationProblem& p) {
  const TensorSpec src = channels_last(p.src.shape);
  const int64_t channels = src.shape[1], count = src.shape.elements();
  const TensorSpec per_channel = plain_spec(Shape{channels});
  const auto epsilon = static_cast<float>(p.epsilon);
  const bool relu = p.relu, training = p.training;
  const ColumnCut cut(count / channels, channels);

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
          launch_column_sums<2>("batch normalization, moments", cut, Moments{b.in(0), channels},
                                TakeMoments{static_cast<double>(cut.rows), b.out(1), b.out(2)},
                                b.scratch, b.queue);
        }
        const Statistics s{training ? b.out(1) : b.in(3), training ? b.out(2) : b.in(4), epsilon};
        launch_each("batch normalization", count, b.queue,
                    Apply{s, b.in(0), b.in(1), b.in(2), b.out(0), channels, relu});
      },
      training ? cut.bytes(2) : 0);
  kernel.backward.push_back(own_pass(
      back_reads, {diff_input(0, src), diff_input(1, per_channel), diff_input(2, per_channel)},
      [=](const Bound& b) {
        const Statistics s{b.in(4), b.in(5), epsilon};
        const Incoming in{s, b.in(0), b.in(1), b.in(2), b.in(3), relu};
        launch_column_sums<2>("batch normalization, sums", cut, Products{in, channels},
                              TakeProducts{b.out(1), b.out(2)}, b.scratch, b.queue);
        launch_each("batch normalization, backward", count, b.queue,
                    ApplyBackward{in, b.out(1), b.out(2), b.out(0), channels,
                                  static_cast<float>(cut.rows), training});
      },
      cut.bytes(2)));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
