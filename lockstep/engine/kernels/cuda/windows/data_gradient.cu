#include <cmath>

#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/windows/data_gradient.h"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct DataGradient {
  StridedTensor w, dy, dx;
  WindowOfThree window;
  int64_t groups;
  const T* weights;
  const T* gradient;
  T* result;

  // The position of y whose window has its element `element` at position `at` of x along an axis;
  // -1: none.
  __device__ int64_t position(int axis, int64_t at, int64_t element) const {
    const int64_t from = at + window.pad[axis] - element * window.dilation[axis];
    if (from < 0) return -1;
    const Division d = divide(from, window.stride[axis]);
    return d.remainder == 0 && d.quotient < dy.space[axis] ? d.quotient : -1;
  }

  // The sum over the window of one output channel.
  __device__ float over_window(const T* w_at, const T* dy_at,
                               const int64_t (&at)[kMostAxes]) const {
    float sum = 0;
    for (int64_t a = 0; a < window.kernel[0]; ++a) {
      const int64_t y0 = position(0, at[0], a);
      if (y0 < 0) continue;
      for (int64_t b = 0; b < window.kernel[1]; ++b) {
        const int64_t y1 = position(1, at[1], b);
        if (y1 < 0) continue;
        for (int64_t c = 0; c < window.kernel[2]; ++c) {
          const int64_t y2 = position(2, at[2], c);
          if (y2 < 0) continue;
          const T& factor = w_at[a * w.space_step[0] + b * w.space_step[1] + c * w.space_step[2]];
          const T& from =
              dy_at[y0 * dy.space_step[0] + y1 * dy.space_step[1] + y2 * dy.space_step[2]];
          sum = std::fma(value_of(factor), value_of(from), sum);
        }
      }
    }
    return sum;
  }

  // Consecutive threads have consecutive channels if these are adjacent in memory.
  __device__ void operator()(int64_t i) const {
    int64_t channel, at[kMostAxes];
    const bool last = dx.channel_step == 1;
    Division d = last ? divide(i, dx.channels) : Division{i, 0};
    channel = d.remainder;
    for (int axis = kMostAxes - 1; axis >= 0; --axis) {
      d = divide(d.quotient, dx.space[axis]);
      at[axis] = d.remainder;
    }
    int64_t n = d.quotient;
    if (!last) {
      d = divide(n, dx.channels);
      n = d.quotient;
      channel = d.remainder;
    }
    const Division group = divide(channel, w.channels);
    const int64_t outputs = w.count / groups, first = group.quotient * outputs;
    float sum = 0;
    for (int64_t k = first; k < first + outputs; ++k) {
      sum += over_window(weights + k * w.count_step + group.remainder * w.channel_step,
                         gradient + n * dy.count_step + k * dy.channel_step, at);
    }
    result[n * dx.count_step + channel * dx.channel_step + at[0] * dx.space_step[0] +
           at[1] * dx.space_step[1] + at[2] * dx.space_step[2]] = rounded<T>(sum);
  }
};

}  // namespace

void launch_data_gradient(const StridedTensor& w, const StridedTensor& dy, const StridedTensor& dx,
                          const WindowOfThree& window, int64_t groups, DType dtype,
                          const void* weights, const void* gradient, void* result, void* stream) {
  const int64_t elements = dx.count * dx.channels * dx.space[0] * dx.space[1] * dx.space[2];
  for_elements(dtype, [&]<class T>(T) {
    launch_each("convolution, backward for data", elements, stream,
                DataGradient<T>{w, dy, dx, window, groups, static_cast<const T*>(weights),
                                static_cast<const T*>(gradient), static_cast<T*>(result)});
  });
}

}  // namespace lockstep::kernels::cuda
