#include "lockstep/engine/kernels/images/normalize_images.h"

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

template <class T>
Pass forward(const TensorSpec& src, const TensorSpec& per_channel, int64_t planes, int64_t channels,
             int64_t space) {
  return own_pass({input(0, src), input(1, per_channel), input(2, per_channel)},
                  {output(0, plain_spec(src.shape))},
                  [=](void* const* r, void* const* w, const RandomContext&) {
                    const float *offset = in(r, 1), *factor = in(r, 2);
                    if (space == 1) {  // features: planes of one element
                      for (int64_t i = 0; i < planes; i += channels) {
                        affine(in<T>(r, 0) + i, offset, factor, out(w, 0) + i,
                               static_cast<size_t>(channels));
                      }
                      return;
                    }
                    for (int64_t i = 0; i < planes; ++i) {
                      affine(in<T>(r, 0) + i * space, offset[i % channels], factor[i % channels],
                             out(w, 0) + i * space, static_cast<size_t>(space));
                    }
                  });
}

}  // namespace

Kernel normalize_images(const NormalizeImagesProblem& p) {
  const TensorSpec src = p.src.plain();
  const int64_t channels = src.shape[1];
  const int64_t planes = src.shape[0] * channels;
  const int64_t space = src.shape.elements() / planes;
  const TensorSpec per_channel = plain_spec(Shape{channels});
  Kernel kernel;
  kernel.rows_apart = true;
  if (src.dtype == DType::u8) {
    kernel.forward = forward<uint8_t>(src, per_channel, planes, channels, space);
    return kernel;
  }
  kernel.forward = forward<float>(src, per_channel, planes, channels, space);
  kernel.backward.push_back(own_pass({diff_output(0, src), input(2, per_channel)},
                                     {diff_input(0, src)},
                                     [=](void* const* r, void* const* w, const RandomContext&) {
                                       for (int64_t i = 0; i < planes; ++i) {
                                         scale(in(r, 0) + i * space, in(r, 1)[i % channels],
                                               out(w, 0) + i * space, static_cast<size_t>(space));
                                       }
                                     }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
