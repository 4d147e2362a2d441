// Recurrent layers: the CUDA back end has the bits of the CPU's.
#include "lockstep/engine/kernels/recurrent/recurrent.h"

#include <gtest/gtest.h>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

TEST(CudaRecurrent, HasTheBitsOfTheProcessor) {
  struct Row {
    std::vector<int32_t> lengths;
    int64_t steps, channels, hidden;
  };
  const Row rows[] = {{{1}, 1, 1, 1},
                      {{0, 0}, 3, 2, 5},
                      {{3, 0, 5, 1, 5}, 5, 7, 19},
                      // Lengths that do not fit.
                      {{2, -1, 4, 1}, 3, 2, 4},
                      // More terms than a block of a sum has.
                      {{290, 3}, 300, 2, 3},
                      {{2, 1}, 2, 270, 90},
                      {{}, 4, 3, 2},
                      {{0, 0}, 0, 3, 2},
                      {{2, 1}, 2, 0, 3}};
  for (const Row& row : rows) {
    const auto n = static_cast<int64_t>(row.lengths.size());
    for (const auto cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::rnn}) {
      for (const bool reverse : {false, true}) {
        for (const bool option : {false, true}) {
          const RecurrentProblem p{.x = plain({n, row.steps, row.channels}),
                                   .hidden = row.hidden,
                                   .cell = cell,
                                   .reverse = reverse,
                                   .reset_after = option,
                                   .relu = option};
          SCOPED_TRACE(p.x.shape.to_string() + " to " + std::to_string(row.hidden) + ", cell " +
                       std::to_string(static_cast<int>(cell)) + (reverse ? ", reverse" : "") +
                       (option ? ", option" : ""));
          compare(cpu_table().recurrent(p), cuda::recurrent(p), kSame,
                  {{{Kind::input, RecurrentOperands::lengths}, bytes_of(row.lengths)}});
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
