#include "lockstep/engine/kernels/shapes/reshape.h"

#include <cstring>

#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

Kernel reshape(const ReshapeProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(p.dst, p.src.dtype);
  const auto copy = [bytes = src.bytes()](void* const* r, void* const* w, const RandomContext&) {
    std::memcpy(w[0], r[0], bytes);
  };
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst)}, copy);
  kernel.backward.push_back(own_pass({diff_output(0, dst)}, {diff_input(0, src)}, copy));
  kernel.forward.copies = kernel.backward[0].copies = true;
  kernel.rows_apart = src.shape.rank() > 0 && dst.shape.rank() > 0 && src.shape[0] == dst.shape[0];
  return kernel;
}

}  // namespace lockstep::kernels::cpu
