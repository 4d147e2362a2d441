#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/shapes/reshape.h"

namespace lockstep::kernels::cuda {

Kernel reshape(const ReshapeProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(p.dst, p.src.dtype);
  const auto copy = [bytes = src.bytes()](const Bound& b) {
    launch_copy("reshape", b.out(0), b.in(0), bytes, b.stream);
  };
  Kernel kernel;
  kernel.forward = own_pass({input(0, src)}, {output(0, dst)}, copy);
  kernel.backward.push_back(own_pass({diff_output(0, dst)}, {diff_input(0, src)}, copy));
  kernel.forward.copies = kernel.backward[0].copies = true;
  return kernel;
}

}  // namespace lockstep::kernels::cuda
