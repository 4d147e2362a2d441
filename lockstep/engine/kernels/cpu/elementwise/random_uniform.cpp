#include "lockstep/engine/kernels/elementwise/random_uniform.h"

#include <algorithm>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// Number of random words made at a time.
constexpr int64_t kWords = 1024;

LOCKSTEP_CLONES void to_floats(const uint32_t* words, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
  }
}

}  // namespace

Kernel random_uniform(const RandomUniformProblem& p) {
  const int64_t rows = p.dst[0], count = p.dst.elements(), columns = rows == 0 ? 0 : count / rows;
  Kernel kernel;
  kernel.forward =
      own_pass({}, {output(0, plain_spec(p.dst))},
               [rows, columns, draw = p.draw](void* const*, void* const* w, const StepInfo& step) {
                 float* y = out(w, 0);
                 for (int64_t row = 0; row < rows; ++row) {
                   const RandomStream stream({.seed = step.seed,
                                              .use = RandomUse::draw,
                                              .a = draw,
                                              .b = step.iteration,
                                              .c = static_cast<uint64_t>(step.first_row + row)});
                   for (int64_t first = 0; first < columns; first += kWords) {
                     const int64_t some = std::min(kWords, columns - first);
                     uint32_t words[kWords];
                     stream.blocks(static_cast<uint64_t>(first / 4),
                                   static_cast<size_t>((some + 3) / 4), words);
                     to_floats(words, some, y + row * columns + first);
                   }
                 }
               });
  kernel.rows_apart = true;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
