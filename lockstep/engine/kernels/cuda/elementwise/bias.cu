#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/elementwise/bias.h"
#include "lockstep/engine/kernels/cuda/reduction.h"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct AddBias {
  ChannelLayout layout;
  const float* bias;
  T* y;
  __device__ void operator()(int64_t i) const {
    const Division channel = divide(divide(i, layout.inner).quotient, layout.channels);
    y[i] = rounded<T>(value_of(y[i]) + bias[channel.remainder]);
  }
};

// With channels last.
template <class T, int P>
struct AddBiasToPacks {
  int64_t channels;
  const float* bias;
  T* y;
  bool aligned;
  __device__ Pack<float, P> columns(int64_t c) const { return load_pack<P>(bias + c, false); }
  __device__ Pack<T, P> load(int64_t c, int64_t row) const {
    return load_pack<P>(y + row * channels + c, aligned);
  }
  __device__ void store(const Pack<float, P>& b, Pack<T, P> v, int64_t c, int64_t row) const {
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      v.element[k] = rounded<T>(value_of(v.element[k]) + b.element[k]);
    }
    store_pack<P>(v, y + row * channels + c, aligned);
  }
};

// P is 1 unless channels come last.
template <class T, int P>
struct Terms {
  ChannelLayout layout;
  const T* dy;
  bool aligned;
  struct None {};
  __device__ None columns(int64_t) const { return {}; }
  __device__ Pack<T, P> load(int64_t c, int64_t row) const {
    const Division at = divide(row, layout.inner);
    return load_pack<P>(dy + (at.quotient * layout.channels + c) * layout.inner + at.remainder,
                        aligned);
  }
  __device__ void add(None, const Pack<T, P>& v, Sums<1> (&sums)[P]) const {
    LOCKSTEP_UNROLL
    for (int k = 0; k < P; ++k) {
      sums[k].value[0] += value_of(v.element[k]);
    }
  }
};

// Calls make() with the number of channels that a thread takes at once.
template <class T, class Make>
auto cut(const ChannelLayout& layout, const Make& make) {
  return layout.inner == 1 ? for_packs<T>(layout.channels, make)
                           : make(std::integral_constant<int, 1>());
}

struct Take {
  float* diff_bias;
  __device__ void operator()(int64_t c, const Totals<1>& sums) const {
    diff_bias[c] = static_cast<float>(sums.value[0]);
  }
};

}  // namespace

template <class T>
void launch_bias(const ChannelLayout& layout, const float* bias, T* y, void* stream) {
  if (layout.inner != 1) {
    launch_each("bias", layout.rows * layout.channels, stream, AddBias<T>{layout, bias, y});
    return;
  }
  for_packs<T>(layout.channels, [&]<class P>(P) {
    launch_each_of_columns(
        "bias", ColumnCut(layout.rows, layout.channels, P::value), stream,
        AddBiasToPacks<T, P::value>{layout.channels, bias, y, in_packs<P::value>(y)});
  });
}
template void launch_bias(const ChannelLayout&, const float*, float*, void*);
template void launch_bias(const ChannelLayout&, const float*, BFloat16*, void*);
template void launch_bias(const ChannelLayout&, const float*, Float16*, void*);

size_t bias_gradient_scratch(const ChannelLayout& layout, DType dtype) {
  return for_elements(dtype, [&]<class T>(T) {
    return cut<T>(layout, [&]<class P>(P) {
      return ColumnCut(layout.rows, layout.channels, P::value).bytes(1);
    });
  });
}

template <class T>
void launch_bias_gradient(const ChannelLayout& layout, const T* dy, float* diff_bias, void* scratch,
                          void* stream) {
  cut<T>(layout, [&]<class P>(P) {
    launch_column_sums<P::value, 1>(
        "bias, backward", ColumnCut(layout.rows, layout.channels, P::value),
        Terms<T, P::value>{layout, dy, in_packs<P::value>(dy)}, Take{diff_bias}, scratch, stream);
  });
}
template void launch_bias_gradient(const ChannelLayout&, const float*, float*, void*, void*);
template void launch_bias_gradient(const ChannelLayout&, const BFloat16*, float*, void*, void*);
template void launch_bias_gradient(const ChannelLayout&, const Float16*, float*, void*, void*);

}  // namespace lockstep::kernels::cuda
