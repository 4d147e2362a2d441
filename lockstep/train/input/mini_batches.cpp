#include "lockstep/train/input/mini_batches.h"

#include "lockstep/train/options/options.h"

namespace lockstep {

MiniBatchQueueOptions mini_batches_of(const TrainingData& data, const TrainingOptions& options) {
  MiniBatchQueueOptions queue;
  queue.mini_batch_size = options.mini_batch_size;
  queue.shuffle = options.data.shuffle;
  queue.balanced = options.data.sampling == Sampling::balanced;
  queue.drop_last = options.data.last_mini_batch == LastMiniBatch::drop;
  queue.sequence_length = options.data.sequence_length;
  queue.group_by_length = options.data.group_by_length;
  queue.seed = static_cast<uint64_t>(options.seed);
  queue.augmentation = data.augmentation;
  queue.own_augmentation = data.own_augmentation;
  queue.noise = data.noise;
  queue.resized_crop = data.resized_crop;
  queue.threads = static_cast<int>(options.data.loader_threads);
  queue.prefetch = static_cast<int>(options.data.prefetch);
  queue.max_epochs = options.max_epochs;
  return queue;
}

}  // namespace lockstep
