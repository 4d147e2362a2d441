// Sizes of mini-batches whose shards are computed fastest.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/options.h"

namespace lockstep {

// Whether all shards of a mini-batch hold a multiple of `multiple` observations.
bool shards_are_multiples(int64_t mini_batch_size, int64_t shard_size, int64_t multiple);

// What to tell a user whose mini-batches have other shards, with the nearest sizes that have none;
// "" where all is well: for networks without convolutions of images, on GPUs, and where the
// processor's kernels take every size alike (multiple = 1, see kernels/fast_sizes.h). `options` are
// resolved. Thread-safe.
std::string shard_size_note(const Network& network, const TrainingOptions& options,
                            int64_t multiple);

}  // namespace lockstep
