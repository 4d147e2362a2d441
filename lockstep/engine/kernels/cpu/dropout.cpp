#include "lockstep/engine/kernels/dropout.h"

#include "lockstep/base/random.h"
#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

Kernel dropout(const DropoutProblem& p) {
  const TensorSpec spec = p.src.plain();
  const int64_t rows = spec.shape[0];
  const int64_t columns = rows == 0 ? 0 : spec.shape.elements() / rows;
  const auto factor = static_cast<float>(1.0 / (1.0 - p.probability));
  // A 32-bit number below the threshold drops its element.
  const auto threshold = static_cast<uint64_t>(p.probability * 4294967296.0);
  const Operand kept = workspace(static_cast<size_t>(spec.shape.elements()));
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, spec)}, {output(0, spec), kept},
               [=, layer = p.layer](void* const* r, void* const* w, const StepInfo& step) {
                 const float* x = in(r, 0);
                 float* y = out(w, 0);
                 auto* keep = out<uint8_t>(w, 1);
                 for (int64_t row = 0; row < rows; ++row) {
                   const RandomStream stream({.seed = step.seed,
                                              .use = RandomUse::dropout,
                                              .a = layer,
                                              .b = step.iteration,
                                              .c = static_cast<uint64_t>(step.first_row + row)});
                   for (int64_t first = 0; first < columns; first += 4) {
                     const auto words = stream.block(static_cast<uint64_t>(first / 4));
                     for (int64_t e = first; e < columns && e < first + 4; ++e) {
                       const int64_t i = row * columns + e;
                       keep[i] = words[static_cast<size_t>(e - first)] >= threshold;
                       y[i] = keep[i] ? x[i] * factor : 0.0f;
                     }
                   }
                 }
               });
  const int64_t count = rows * columns;
  kernel.backward.push_back(own_pass({diff_output(0, spec), kept}, {diff_input(0, spec)},
                                     [=](void* const* r, void* const* w, const StepInfo&) {
                                       const float* dy = in(r, 0);
                                       const auto* keep = in<uint8_t>(r, 1);
                                       float* dx = out(w, 0);
                                       for (int64_t i = 0; i < count; ++i) {
                                         dx[i] = keep[i] ? dy[i] * factor : 0.0f;
                                       }
                                     }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
