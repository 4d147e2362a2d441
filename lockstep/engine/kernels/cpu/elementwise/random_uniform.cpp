#include "lockstep/engine/kernels/elementwise/random_uniform.h"

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/elementwise/random_words.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

LOCKSTEP_CLONES void to_floats(const uint32_t* words, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
  }
}

}  // namespace

Kernel random_uniform(const RandomUniformProblem& p) {
  const int64_t rows = p.dst[0], columns = rows == 0 ? 0 : p.dst.elements() / rows;
  Kernel kernel;
  kernel.forward = own_pass(
      {}, {output(0, plain_spec(p.dst))},
      [rows, columns, draw = p.draw](void* const*, void* const* w, const RandomContext& step) {
        float* const y = out(w, 0);
        for_random_words(step, RandomUse::draw, draw, rows, columns,
                         [y](const uint32_t* words, int64_t first, int64_t count) {
                           to_floats(words, count, y + first);
                         });
      });
  kernel.rows_apart = true;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
