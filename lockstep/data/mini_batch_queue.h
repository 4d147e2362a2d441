// Mini-batches of images or arrays of floats, decoded and augmented ahead of their use by
// background threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/data/augmentation.h"
#include "lockstep/data/image_cache.h"
#include "lockstep/data/noise.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

enum class Shuffle { never, once, every_epoch };

struct MiniBatch;

struct MiniBatchQueueOptions {
  int64_t mini_batch_size = 128;           // observations
  Shuffle shuffle = Shuffle::every_epoch;  // never: the order of the listing
  bool drop_last = true;                   // a last, partial mini-batch is dropped, else kept
  uint64_t seed = 0;                       // of shuffling, augmentation and noise
  Augmentation augmentation = {};
  // False: inputs come as they were read, with the maps that change them; targets are changed.
  bool augment_inputs = true;
  InputNoise noise = {};
  // What an image-to-image network shall make of the images, one for each; may be the images
  // themselves (the same cache). Augmented as they are, without noise. Or arrays of floats, which
  // stay as they are. Null: labels alone.
  std::shared_ptr<const ImageCache> targets = {};
  int threads = 1;   // background threads
  int prefetch = 4;  // mini-batches ahead of the caller
  // Threads that compute call help(); background threads then make only what next() would wait for.
  // Without effect where images do not lie in memory.
  bool helped = false;
  int64_t max_epochs = 1;  // epochs 0 to max_epochs - 1
  // Of mini-batch number `index` of an epoch, with n observations, the rows whose inputs and
  // targets are wanted; the others' are left as they may be. Empty: all.
  struct Rows {
    int64_t first = 0, count = 0;
  };
  std::function<std::vector<Rows>(int64_t epoch, int64_t index, int64_t n)> rows = {};
  // Called with every mini-batch when it is made, by several threads at once: may change
  // inputs, labels and targets, also their number. What it does must depend on the mini-batch alone
  // (its epoch and index, too) for the same mini-batches whatever the threads. What it throws,
  // next() throws.
  std::function<void(MiniBatch&)> preprocess = {};
};

// n observations of a mini-batch.
struct MiniBatch {
  int64_t epoch = 0, index = 0;         // epoch from 0, mini-batch within the epoch from 0
  std::vector<int64_t> observations;    // n indices into the listing
  std::vector<uint8_t> pixels;          // n x channels x height x width
  std::vector<kernels::ImageMap> maps;  // n, where `pixels` are yet to be changed so; else none
  std::vector<int32_t> labels;          // n indices into the classes
  std::vector<uint8_t> targets;         // n images, where there are such
  // Where observations (targets) are arrays of floats instead, these, row-major; then no pixels
  // (targets).
  std::vector<float> values, target_values;
  Digest observations_digest;  // of `observations`, for the receipt

  int64_t size() const { return static_cast<int64_t>(observations.size()); }
  // What the network takes: the bytes of `pixels` or of `values`.
  std::span<const std::byte> inputs() const {
    return values.empty() ? std::as_bytes(std::span(pixels)) : std::as_bytes(std::span(values));
  }
  // Elements of all targets, of either kind.
  size_t target_elements() const { return targets.size() + target_values.size(); }
};

// The order of n observations in an epoch: a permutation that is a function of the arguments alone
// (RandomUse::shuffle, key a = epoch). `once` takes that of epoch 0, `never` the listing's.
// Thread-safe.
std::vector<int64_t> epoch_order(int64_t n, Shuffle shuffle, uint64_t seed, int64_t epoch);

// Mini-batches of n observations in an epoch: n / size rounded down (drop_last) or up.
int64_t batches_per_epoch(int64_t n, const MiniBatchQueueOptions& options);

// Throws InvalidArgument for options that cannot work with n observations, whatever the images:
// sizes below 1, a mini-batch larger than the data with drop_last, ranges of augmentation and
// noise. Thread-safe.
void check_mini_batches(int64_t n, const MiniBatchQueueOptions& options);

// n x classes floats: 1 where the label is, else 0. Throws InvalidArgument naming a label outside.
// Thread-safe.
Tensor one_hot(std::span<const int32_t> labels, int64_t classes);

// The digest of a mini-batch's indices, as in MiniBatch::observations_digest.
Digest digest_observations(const std::vector<int64_t>& observations);

// Hands out the mini-batches from (first_epoch, first_batch) to the end of the last epoch, in
// order. Their content depends on the cache's datastore and size and on the options other than
// `threads`, `prefetch` and `helped`; not on those, on the cache's budget or on where it starts.
// The caller's side (has_data, next, reset, shuffle) is for one thread at a time.
class MiniBatchQueue {
 public:
  // Starts the threads. Throws InvalidArgument for options that cannot work: sizes below 1, a
  // mini-batch larger than the data with drop_last, no observations, a start outside, targets of
  // another number, or of another size where images are translated, augmentation or noise of
  // arrays, noise without changes that come before it. first_batch may equal the number of batches
  // per epoch (the next epoch follows).
  MiniBatchQueue(std::shared_ptr<const ImageCache> cache, MiniBatchQueueOptions options,
                 int64_t first_epoch = 0, int64_t first_batch = 0);
  // Stops the threads after the image each is at.
  ~MiniBatchQueue();
  MiniBatchQueue(const MiniBatchQueue&) = delete;
  MiniBatchQueue& operator=(const MiniBatchQueue&) = delete;

  // Whether next() has something to give; false after the last epoch.
  bool has_data() const;
  // The next mini-batch; waits for it. Its buffers are used again when the last pointer to it is
  // dropped, so nothing is allocated once the queue runs evenly; it may outlive the queue. Rethrows
  // what reading it threw (DataError), again on each further call. InvalidArgument at the end.
  std::shared_ptr<const MiniBatch> next();

  // Makes a few observations of the mini-batch that next() will give, or with `ahead` of later
  // ones, too: some microseconds' worth where images are small, `preprocess` where they were the
  // last. False where nothing is to be done, or not `helped`. Thread-safe, but for reset() and
  // shuffle().
  bool help(bool ahead);

  // Goes to the first mini-batch of an epoch; what was made ahead is dropped, an error forgotten.
  // The mini-batches are those that a new queue would give. Throws InvalidArgument unless
  // 0 <= epoch <= max_epochs.
  void reset(int64_t epoch = 0);
  // As new, in the order and with the draws of another seed, from epoch 0; where the queue did not
  // shuffle, it shuffles once from now on.
  void shuffle(uint64_t seed);

  int64_t batches_per_epoch() const;
  // Processor seconds of background threads that a mini-batch has taken on the average, of those
  // made since the start, reset() or shuffle(); 0 before the first. Thread-safe.
  double seconds_each() const;
  // Position of the mini-batch that next() will give.
  int64_t epoch() const;
  int64_t batch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
