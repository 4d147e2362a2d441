// Sizes of shards, and mini-batch sizes whose shards compute fastest.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct TrainingData;
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

// A sentence for the user if a mini-batch has fewer shards than there are threads in all workers:
// "only 1 of the 2 threads is useful: a mini-batch has 1 shard". "" otherwise. Thread-safe.
std::string idle_threads_note(int64_t shards, int64_t threads, int64_t workers);

// What to add to this note where smaller shards would use more threads and save a quarter of the
// time or more: "; shard_size = 8 would use 2 (...)". "" otherwise: on GPUs, for small networks,
// for losses that may depend on all observations of a shard, and where fewer than 4 observations
// would be left for layers that normalize over them. `options` are resolved.
std::string smaller_shards_advice(const Network& network, const TrainingData& data,
                                  const TrainingOptions& options);

}  // namespace lockstep
