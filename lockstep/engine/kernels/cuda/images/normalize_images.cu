#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/images/normalize_images.h"

namespace lockstep::kernels::cuda {
namespace {

// The channel and the row-major index of element i of channels-last memory.
struct Position {
  int64_t channel, row_major;
};
__device__ Position position_of(int64_t i, int64_t channels, int64_t space) {
  const Division pixel = divide(i, channels);
  const Division image = divide(pixel.quotient, space);
  return {pixel.remainder, (image.quotient * channels + pixel.remainder) * space + image.remainder};
}

template <class T>
struct Forward {
  const T* x;
  const float *offset, *factor;
  float* y;
  int64_t channels, space;
  __device__ void operator()(int64_t i) const {
    const Position at = position_of(i, channels, space);
    y[i] = (static_cast<float>(x[at.row_major]) - offset[at.channel]) * factor[at.channel];
  }
};

struct Backward {
  const float *dy, *factor;
  float* dx;
  int64_t channels, space;
  __device__ void operator()(int64_t i) const {
    const Position at = position_of(i, channels, space);
    dx[at.row_major] = dy[i] * factor[at.channel];
  }
};

template <class T>
Pass forward(const TensorSpec& src, const TensorSpec& per_channel, const TensorSpec& dst,
             const Extents& e) {
  return own_pass({input(0, src), input(1, per_channel), input(2, per_channel)}, {output(0, dst)},
                  [=, count = src.shape.elements()](const Bound& b) {
                    launch_each(
                        "normalize images", count, b.stream,
                        Forward<T>{b.in<T>(0), b.in(1), b.in(2), b.out(0), e.channels, e.space});
                  });
}

}  // namespace

// Reads row-major images and writes channels last, so that the conversion needs no pass of its own.
Kernel normalize_images(const NormalizeImagesProblem& p) {
  const TensorSpec src = p.src.plain(), dst = channels_last(p.src.shape);
  const Extents e = extents_of(src.shape);
  const TensorSpec per_channel = plain_spec(Shape{e.channels});
  Kernel kernel;
  if (src.dtype == DType::u8) {
    kernel.forward = forward<uint8_t>(src, per_channel, dst, e);
    return kernel;
  }
  kernel.forward = forward<float>(src, per_channel, dst, e);
  kernel.backward.push_back(
      own_pass({diff_output(0, dst), input(2, per_channel)}, {diff_input(0, src)},
               [=, count = src.shape.elements()](const Bound& b) {
                 launch_each("normalize images, backward", count, b.stream,
                             Backward{b.in(0), b.in(1), b.out(0), e.channels, e.space});
               }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
