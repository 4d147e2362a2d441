// Which sizes the CPU's kernels like.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

// Convolutions of images are fastest where the observations of a batch are a multiple of this: 16
// with AVX-512, where images lie side by side in the vectors; 1 elsewhere, where it does not
// matter. Thread-safe.
int64_t fast_batch_multiple();

}  // namespace lockstep::kernels
