#include "lockstep/engine/kernels/elementwise/expression.h"

#include "lockstep/engine/kernels/cpu/elementwise/expression_stream.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/elementwise/broadcast_axes.h"

namespace lockstep::kernels::cpu {

Kernel expression(const ExpressionProblem& p) {
  auto stream = std::make_shared<const ExpressionStream>(p);
  std::vector<Operand> reads;
  for (size_t i = 0; i < p.src.size(); ++i) {
    reads.push_back(input(static_cast<int>(i), p.src[i]));
  }
  Kernel kernel;
  kernel.forward =
      own_pass_with_scratch(std::move(reads), {output(0, p.dst_spec())}, stream->scratch_bytes(),
                            [stream](void* const* r, void* const* w, void* scratch) {
                              ExpressionMemory dst(out(w, 0));
                              stream->run(r, scratch, dst);
                            });
  kernel.rows_apart = p.dst.rank() > 0;
  for (size_t i = 0; i < p.src.size(); ++i) {
    const Shape& shape = p.src[i].shape;
    if (p.is_strided(i)) {
      kernel.rows_apart = kernel.rows_apart && keeps_rows(p.strided[i], shape, p.dst);
      continue;
    }
    if (shape == p.dst) kernel.forward.in_place.push_back(static_cast<int>(i));
    // Of a broadcast input every row reads the same elements.
    const bool broadcast = shape.rank() < p.dst.rank() || shape.rank() == 0 || shape[0] == 1;
    kernel.rows_apart = kernel.rows_apart && (broadcast || shape[0] == p.dst[0]);
  }
  return kernel;
}

}  // namespace lockstep::kernels::cpu
