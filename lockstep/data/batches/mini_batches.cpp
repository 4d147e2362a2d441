// The mini-batches of an epoch: which observations each one has. The queue makes them.
#include <string>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/batches/queue_check.h"

namespace lockstep {

std::vector<int64_t> epoch_order(int64_t n, Shuffle shuffle, uint64_t seed, int64_t epoch) {
  if (shuffle != Shuffle::never) {
    const uint64_t a = shuffle == Shuffle::once ? 0 : static_cast<uint64_t>(epoch);
    return random_permutation({.seed = seed, .use = RandomUse::shuffle, .a = a}, n);
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  return order;
}

int64_t batches_per_epoch(int64_t n, const MiniBatchQueueOptions& options) {
  const int64_t size = options.mini_batch_size;
  require_in_queue(size >= 1 && size <= int64_t{1} << 31,
                   "mini_batch_size is " + std::to_string(size) + ", but must be 1 to 2^31");
  require_in_queue(options.sequence_length == 0,
                   "the number of mini-batches depends on the lengths of sequences that are cut",
                   "call batches_per_epoch() with the data");
  return n / size + (options.drop_last || n % size == 0 ? 0 : 1);
}

void check_mini_batches(int64_t n, const MiniBatchQueueOptions& options) {
  MiniBatchQueueOptions whole = options;
  whole.sequence_length = 0;
  const int64_t per_epoch = batches_per_epoch(n, whole);
  for (const auto& [name, value] : {std::pair{"sequence_length", options.sequence_length},
                                    std::pair{"group_by_length", options.group_by_length}}) {
    require_in_queue(
        value >= 0 && value <= int64_t{1} << 31,
        std::string(name) + " is " + std::to_string(value) + ", but must be 0 to 2^31");
  }
  require_in_queue(!options.balanced || options.shuffle != Shuffle::never,
                   "balanced draws the observations at random, but shuffle is never",
                   "shuffle in every epoch, or once");
  require_in_queue(!options.balanced || options.sequence_length == 0,
                   "balanced is not for sequences that are cut",
                   "leave sequence_length or balanced out");
  require_in_queue(per_epoch > 0,
                   "a mini-batch of " + counted(options.mini_batch_size, "observation") +
                       " is larger than the data (" + std::to_string(n) +
                       ") and partial mini-batches are dropped, so an epoch would be empty",
                   "choose a mini_batch_size of at most " + std::to_string(n) +
                       " or keep the last, partial mini-batch");
  require_in_queue(options.threads >= 1 && options.threads <= 1024,
                   "threads is " + std::to_string(options.threads) + ", but must be 1 to 1024");
  require_in_queue(options.prefetch >= 1 && options.prefetch <= 1 << 20,
                   "prefetch is " + std::to_string(options.prefetch) + ", but must be 1 to 2^20");
  require_in_queue(
      options.max_epochs >= 1 && options.max_epochs <= int64_t{1} << 31,
      "max_epochs is " + std::to_string(options.max_epochs) + ", but must be 1 to 2^31");
  // These calls throw for invalid ranges.
  options.augmentation.check();
  add_noise(options.noise, options.seed, 0, 0, nullptr, 0);
}

Tensor one_hot(std::span<const int32_t> labels, int64_t classes) {
  if (classes < 1) {
    throw InvalidArgument("[one_hot] " + counted(classes, "class", "classes") +
                          ": at least one is required");
  }
  const auto n = static_cast<int64_t>(labels.size());
  Tensor rows = Tensor::zeros({n, classes});
  auto* const values = rows.data<float>();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = labels[static_cast<size_t>(i)];
    if (label < 0 || label >= classes) {
      throw InvalidArgument("[one_hot] label " + std::to_string(label) + " at index " +
                            std::to_string(i) + ", but there are " +
                            counted(classes, "class", "classes") + ", counted from 0");
    }
    values[i * classes + label] = 1;
  }
  return rows;
}

Digest digest_observations(const std::vector<int64_t>& observations) {
  return digest_of(observations.data(), observations.size() * sizeof(int64_t));
}

}  // namespace lockstep
