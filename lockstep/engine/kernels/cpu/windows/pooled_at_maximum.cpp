#include "lockstep/engine/kernels/windows/pooled_at_maximum.h"

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/windows/largest_position.h"

namespace lockstep::kernels::cpu {

Kernel pooled_at_maximum(const PooledAtMaximumProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(p.dst);
  const int64_t planes = src.shape[0] * src.shape[1];
  const WindowBox box(src.shape, p.dst, p.window);
  const int64_t elements = box.size[0] * box.size[1] * box.size[2];
  const int64_t results = box.positions[0] * box.positions[1] * box.positions[2];
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass({input(0, src), input(1, src)}, {output(0, dst)},
                            [=](void* const* r, void* const* w, const RandomContext&) {
                              const float *x = in(r, 0), *values = in(r, 1);
                              float* y = out(w, 0);
                              for (int64_t n = 0; n < planes; ++n) {
                                for (int64_t i = 0; i < results; ++i) {
                                  const int64_t at = box.largest(x, i);
                                  *y++ = at < 0 ? 0.0f : values[at];
                                }
                                x += elements;
                                values += elements;
                              }
                            });
  return kernel;
}

}  // namespace lockstep::kernels::cpu
