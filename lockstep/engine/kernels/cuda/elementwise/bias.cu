#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/elementwise/bias.h"
#include "lockstep/engine/kernels/cuda/reduction.h"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct AddBias {
  ChannelPlaces places;
  const float* bias;
  T* y;
  __device__ void operator()(int64_t i) const {
    const Division channel = divide(divide(i, places.inner).quotient, places.channels);
    y[i] = rounded<T>(value_of(y[i]) + bias[channel.remainder]);
  }
};

template <class T>
struct Term {
  ChannelPlaces places;
  const T* dy;
  __device__ int64_t column(int64_t c) const { return c; }
  __device__ Sums<1> operator()(int64_t c, int64_t row) const {
    const Division at = divide(row, places.inner);
    const int64_t i = (at.quotient * places.channels + c) * places.inner + at.remainder;
    return {{static_cast<double>(value_of(dy[i]))}};
  }
};

struct Take {
  float* diff_bias;
  __device__ void operator()(int64_t c, const Sums<1>& sums) const {
    diff_bias[c] = static_cast<float>(sums.value[0]);
  }
};

}  // namespace

template <class T>
void launch_bias(const ChannelPlaces& places, const float* bias, T* y, void* stream) {
  launch_each("bias", places.rows * places.channels, stream, AddBias<T>{places, bias, y});
}
template void launch_bias(const ChannelPlaces&, const float*, float*, void*);
template void launch_bias(const ChannelPlaces&, const float*, BFloat16*, void*);
template void launch_bias(const ChannelPlaces&, const float*, Float16*, void*);

size_t bias_gradient_scratch(const ChannelPlaces& places) {
  return ColumnCut(places.rows, places.channels).bytes(1);
}

template <class T>
void launch_bias_gradient(const ChannelPlaces& places, const T* dy, float* diff_bias, void* scratch,
                          void* stream) {
  launch_column_sums<1>("bias, backward", ColumnCut(places.rows, places.channels),
                        Term<T>{places, dy}, Take{diff_bias}, scratch, stream);
}
template void launch_bias_gradient(const ChannelPlaces&, const float*, float*, void*, void*);
template void launch_bias_gradient(const ChannelPlaces&, const BFloat16*, float*, void*, void*);
template void launch_bias_gradient(const ChannelPlaces&, const Float16*, float*, void*, void*);

}  // namespace lockstep::kernels::cuda
