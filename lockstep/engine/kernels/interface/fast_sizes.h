// Batch sizes that suit the CPU's kernels.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

// Convolutions of images are fastest if the number of observations in a batch is a multiple of
// this. It is 16 with AVX2, where the lanes of a vector hold different images, and 1 elsewhere,
// where the number does not matter. Thread-safe.
int64_t fast_batch_multiple();

}  // namespace lockstep::kernels
