// Sizes of shards, and mini-batch sizes whose shards compute fastest.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct TrainingOptions;

// The most observations in a shard where options leave it open (shard_size = 0), a function of
// network and device alone: 256 on a GPU. On the CPU 16, but 8 for sequences and 2 for networks
// with attention, whose observations are work enough for a thread.
int64_t default_shard_size(const Network& network, const Device& device);
// Sets it in options that leave it open.
void set_shard_size(const Network& network, const Device& device, TrainingOptions& options);

// Whether the size of each shard of a mini-batch is a multiple of `multiple`.
bool shards_are_multiples(int64_t mini_batch_size, int64_t shard_size, int64_t multiple);

// A note for the user if shards are not multiples of `multiple`, with the nearest sizes that are.
// "" if there is no issue: for networks without image convolutions, on GPUs, and if the processor's
// kernels handle all sizes equally (multiple = 1, see kernels/fast_sizes.h). `options` are
// resolved. Thread-safe.
std::string shard_size_note(const Network& network, const TrainingOptions& options,
                            int64_t multiple);

}  // namespace lockstep
