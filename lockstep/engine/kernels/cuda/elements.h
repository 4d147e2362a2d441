// Element types that kernels read and write: float, bfloat16 and half. Kernels compute in float.
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <cfloat>
#include <type_traits>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/float16.h"
#include "lockstep/engine/kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

__device__ inline float value_of(float x) { return x; }
__device__ inline float value_of(BFloat16 x) {
#ifdef __CUDACC__
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
#else
  return to_float(x);
#endif
}

__device__ inline float value_of(Float16 x) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(x.bits));
#else
  return to_float(x);
#endif
}

// Rounds to nearest, ties to even. NaN stays NaN; values beyond the range become infinite.
template <class T>
__device__ T rounded(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, Float16>) {
#ifdef __CUDACC__
    return {__half_as_ushort(__float2half_rn(x))};
#else
    return to_float16(x);
#endif
  } else {
#ifdef __CUDACC__
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
    return to_bfloat16(x);
#endif
  }
}

// Returns make(T()) for the element type T of `dtype`. All T must give the same return type.
template <class Make>
auto for_elements(DType dtype, const Make& make) {
  return dtype == DType::bf16  ? make(BFloat16())
         : dtype == DType::f16 ? make(Float16())
                               : make(float());
}

// The lowest finite number.
template <class T>
__device__ constexpr float lowest() {
  return std::is_same_v<T, float>     ? -FLT_MAX
         : std::is_same_v<T, Float16> ? -65504.0f
                                      : -0x1.fep127f;
}

// Number of elements that a thread reads and writes at once: 16 bytes of floats. Adjacent threads
// access adjacent packs.
inline constexpr int kPack = 4;
template <class T, int size>
struct alignas(size * sizeof(T)) Pack {
  T element[size];
};

template <int size, class T>
bool in_packs(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % (size * sizeof(T)) == 0;
}

// `size` neighboring elements, by one access if `data` is aligned to a pack.
template <int size, class T>
__device__ Pack<T, size> load_pack(const T* data, bool aligned) {
  if (aligned) return *reinterpret_cast<const Pack<T, size>*>(data);
  Pack<T, size> pack;
  LOCKSTEP_UNROLL
  for (int k = 0; k < size; ++k) pack.element[k] = data[k];
  return pack;
}

template <int size, class T>
__device__ void store_pack(const Pack<T, size>& pack, T* data, bool aligned) {
  if (aligned) {
    *reinterpret_cast<Pack<T, size>*>(data) = pack;
    return;
  }
  LOCKSTEP_UNROLL
  for (int k = 0; k < size; ++k) data[k] = pack.element[k];
}

// Returns make(std::integral_constant<int, P>()) for the number of channels that a thread takes at
// once: as many as 16 bytes hold, if they divide `channels`. All P must give the same return type.
template <class T, class Make>
auto for_packs(int64_t channels, const Make& make) {
  constexpr int most = 16 / static_cast<int>(sizeof(T));
  if (channels % most == 0) return make(std::integral_constant<int, most>());
  if constexpr (most > 4) {
    if (channels % 4 == 0) return make(std::integral_constant<int, 4>());
  }
  return make(std::integral_constant<int, 1>());
}

// y[i] = f(x[i]...) for arrays of `count` elements. F: __device__ float operator()(float...) const.
// `y` may be the same array as one of `x`.
template <int size, class F, class Y, class... X>
__global__ void map_packs(int64_t count, F f, Y* y, const X*... x) {
  const auto apply = [&](Pack<Y, size>& to, const Pack<X, size>&... from) {
    for (int k = 0; k < size; ++k) to.element[k] = rounded<Y>(f(value_of(from.element[k])...));
  };
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x, packs = count / size;
  for (int64_t p = first; p < packs; p += step) {
    Pack<Y, size> to;
    apply(to, reinterpret_cast<const Pack<X, size>*>(x)[p]...);
    reinterpret_cast<Pack<Y, size>*>(y)[p] = to;
  }
  const int64_t rest = packs * size + first;
  if (rest < count) y[rest] = rounded<Y>(f(value_of(x[rest])...));
}

template <class F, class Y, class... X>
void launch_map(const char* name, int64_t count, void* stream, const F& f, Y* y, const X*... x) {
  if (count == 0) return;
  // Slices of tensors may have any alignment.
  const bool packed = in_packs<kPack>(y) && (in_packs<kPack>(x) && ...);
  constexpr int64_t most_blocks = int64_t{1} << 20;
  const int64_t elements = kBlock * (packed ? kPack : 1);
  launch(name, packed ? map_packs<kPack, F, Y, X...> : map_packs<1, F, Y, X...>,
         {.blocks = std::min((count + elements - 1) / elements, most_blocks)}, stream, count, f, y,
         x...);
}

}  // namespace lockstep::kernels::cuda
