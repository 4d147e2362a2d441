#include "lockstep/engine/kernels/elementwise/dropout.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/elementwise/random_words.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

namespace {

// keep[i] = 1 if words[i] >= least; all 0 if `any` is false.
LOCKSTEP_CLONES void choose(const uint32_t* words, uint32_t least, bool any, int64_t count,
                            uint8_t* keep) {
  for (int64_t i = 0; i < count; ++i) keep[i] = (words[i] >= least) & any;
}

// Uses bit operations, because a branch on random bits would be unpredictable.
LOCKSTEP_CLONES void drop(const float* __restrict x, const uint8_t* __restrict keep, float factor,
                          int64_t count, float* __restrict y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i] * factor) & (0u - keep[i]));
  }
}

}  // namespace

Kernel dropout(const DropoutProblem& p) {
  const TensorSpec spec = p.src.plain();
  const int64_t rows = spec.shape[0];
  const int64_t columns = rows == 0 ? 0 : spec.shape.elements() / rows;
  const auto factor = static_cast<float>(1.0 / (1.0 - p.probability));
  // A 32-bit number below the threshold drops its element.
  const auto threshold = static_cast<uint64_t>(p.probability * 4294967296.0);
  const bool any = threshold <= 0xffffffffu;
  const auto least = static_cast<uint32_t>(std::min<uint64_t>(threshold, 0xffffffffu));
  const Operand kept = workspace(static_cast<size_t>(spec.shape.elements()));
  Kernel kernel;
  kernel.forward =
      own_pass({input(0, spec)}, {output(0, spec), kept},
               [=, layer = p.layer](void* const* r, void* const* w, const RandomContext& step) {
                 const float* x = in(r, 0);
                 float* y = out(w, 0);
                 auto* keep = out<uint8_t>(w, 1);
                 for_random_words(step, RandomUse::dropout, layer, rows, columns,
                                  [=](const uint32_t* words, int64_t first, int64_t count) {
                                    choose(words, least, any, count, keep + first);
                                    drop(x + first, keep + first, factor, count, y + first);
                                  });
               });
  kernel.rows_apart = true;
  const int64_t count = rows * columns;
  kernel.backward.push_back(own_pass({diff_output(0, spec), kept}, {diff_input(0, spec)},
                                     [=](void* const* r, void* const* w, const RandomContext&) {
                                       drop(in(r, 0), in<uint8_t>(r, 1), factor, count, out(w, 0));
                                     }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
