// The random words of the elements of a mini-batch, for kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/base/numeric/random.h"

namespace lockstep::kernels::cpu {

// Calls use(words, first, count) for parts of `rows` x `columns` elements, where `first` is the
// first element: word i belongs to element first + i. Element e of row r has word e of the stream
// with the key (seed, use_of, a, iteration, position of r in the mini-batch).
template <class Use>
void for_random_words(const RandomContext& step, RandomUse use_of, uint64_t a, int64_t rows,
                      int64_t columns, const Use& use) {
  constexpr int64_t most = 1024;
  uint32_t words[most];
  for (int64_t row = 0; row < rows; ++row) {
    const RandomStream stream({.seed = step.seed,
                               .use = use_of,
                               .a = a,
                               .b = step.iteration,
                               .c = static_cast<uint64_t>(step.first_row + row)});
    for (int64_t first = 0; first < columns; first += most) {
      const int64_t count = std::min(most, columns - first);
      stream.blocks(static_cast<uint64_t>(first / 4), static_cast<size_t>((count + 3) / 4), words);
      use(words, row * columns + first, count);
    }
  }
}

}  // namespace lockstep::kernels::cpu
