#include "lockstep/engine/kernels/cuda/bias.h"
#include "lockstep/engine/kernels/cuda/reduction.h"

namespace lockstep::kernels::cuda {
namespace {

struct AddBias {
  ChannelPlaces places;
  const float* bias;
  float* y;
  __device__ void operator()(int64_t i) const {
    y[i] += bias[divide(divide(i, places.inner).quotient, places.channels).remainder];
  }
};

struct Term {
  ChannelPlaces places;
  const float* dy;
  __device__ int64_t column(int64_t c) const { return c; }
  __device__ Sums<1> operator()(int64_t c, int64_t row) const {
    const Division at = divide(row, places.inner);
    const int64_t i = (at.quotient * places.channels + c) * places.inner + at.remainder;
    return {{static_cast<double>(dy[i])}};
  }
};

struct Take {
  float* diff_bias;
  __device__ void operator()(int64_t c, const Sums<1>& sums) const {
    diff_bias[c] = static_cast<float>(sums.value[0]);
  }
};

}  // namespace

void launch_bias(const ChannelPlaces& places, const float* bias, float* y, void* queue) {
  launch_each("bias", places.rows * places.channels, queue, AddBias{places, bias, y});
}

size_t bias_gradient_scratch(const ChannelPlaces& places) {
  return ColumnCut(places.rows, places.channels).bytes(1);
}

void launch_bias_gradient(const ChannelPlaces& places, const float* dy, float* diff_bias,
                          void* scratch, void* queue) {
  launch_column_sums<1>("bias, backward", ColumnCut(places.rows, places.channels), Term{places, dy},
                        Take{diff_bias}, scratch, queue);
}

}  // namespace lockstep::kernels::cuda
