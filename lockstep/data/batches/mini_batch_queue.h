// Mini-batches of examples. Background threads decode and augment them before they are needed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/data/batches/mini_batch.h"
#include "lockstep/data/batches/statistics.h"
#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

class ExampleCache;  // data/batches/example_cache.h
class ThreadPool;
struct IndexRange;  // base/numeric/index_range.h

struct MiniBatchQueueOptions {
  int64_t mini_batch_size = 128;  // observations
  Shuffle shuffle = Shuffle::every_epoch;
  // Each epoch draws as many observations as there are: first a class, each with the same
  // probability, then the next observation of this class in its shuffled order, which begins again
  // when all were drawn. Only with classes and shuffling, and without sequence_length. False: each
  // epoch has every observation once.
  bool balanced = false;
  bool drop_last = true;  // drop a last, partial mini-batch; otherwise keep it
  uint64_t seed = 0;      // seed of shuffling, augmentation and noise
  // Sequences are cut into segments of at most this many steps: a mini-batch becomes as many
  // mini-batches, one after another, as its longest sequence has segments. Inputs and targets by
  // step are cut alike; other values are those of each segment. 0: the longest, so nothing is cut.
  int64_t sequence_length = 0;
  // The observations of this many mini-batches are sorted by length before they are divided, so
  // that each mini-batch has sequences of like lengths. Mini-batches are then shuffled. 0: off.
  int64_t group_by_length = 0;
  Augmentation augmentation = {};
  // Is called for each observation after `augmentation`, with the pixels of its images. next()
  // rethrows its exceptions, as an Error that names the observation. Throws InvalidArgument from
  // next() for a function that changes sizes of images, makes classes of pixels that do not exist,
  // or makes other pixels of the same example when it is called again, which is tried with one
  // observation of each epoch.
  OwnAugmentation own_augmentation = {};
  // False: images are returned as read, together with the maps that augment them. Targets and
  // sequences are augmented.
  bool augment_inputs = true;
  InputNoise noise = {};
  // Images may have any size: of each one a region is drawn, which changes every epoch, and resized
  // to the input's shape. Nothing: they have that shape.
  std::optional<RandomResizedCrop> resized_crop = {};
  // Memory for decoded examples, which is taken as they are read. Examples beyond it are decoded
  // again in each epoch.
  size_t cache_bytes = size_t{1} << 30;
  // Of targets that are images: channels x rows x columns. Nothing: the shape of the first input.
  std::optional<Shape> target_shape = {};
  // For trainers: targets of their own cache, one for each example: the first input of its
  // examples. May be the cache of the examples itself. Targets that are images are augmented like
  // the images, without noise. Targets that are arrays or sequences stay unchanged. Null: the
  // targets of the examples, if they have some, otherwise labels only.
  std::shared_ptr<const ExampleCache> targets = {};
  // Background threads. Up to one for each core while images that fit into the memory are read for
  // the first time, if an earlier process has read them.
  int threads = 1;
  int prefetch = 4;  // mini-batches prepared ahead of the caller
  // Compute threads call help(). Background threads then only make the mini-batch for which next()
  // waits. No effect unless all images fit into the cache's memory.
  bool helped = false;
  int64_t max_epochs = 1;  // epochs 0 to max_epochs - 1
  // Returns the rows of mini-batch number `index` with n observations whose inputs and targets are
  // needed. The contents of other rows are undefined. Without a function, all rows are needed.
  std::function<std::vector<IndexRange>(int64_t epoch, int64_t index, int64_t n)> rows = {};
  // Called with every finished mini-batch, by several threads at the same time. May change arrays,
  // add others and change the number of their rows. Mini-batches do not depend on the threads if
  // its result depends on the mini-batch only, including its epoch and index. next() rethrows its
  // exceptions.
  std::function<void(MiniBatch&)> preprocess = {};
  // Called several times a second while next() waits. If it returns true, next() throws Cancelled;
  // the mini-batch can be taken later.
  std::function<bool()> cancelled = {};
  // "cpu", "cuda" or "cuda:N": mini-batches have tensors there (MiniBatch::tensors), for custom
  // loops. The threads that make mini-batches copy them ahead, while the device works. Work that is
  // added to the device's default stream after next() waits for the copies by itself. "": no
  // tensors.
  std::string device = {};
};

// Returns the order of n observations in an epoch: a permutation that is a function of the
// arguments only (RandomUse::shuffle, key a = epoch). `once` uses the order of epoch 0, `never`
// that of the listing. Thread-safe.
std::vector<int64_t> epoch_order(int64_t n, Shuffle shuffle, uint64_t seed, int64_t epoch);

// Returns the number of mini-batches of n observations in an epoch: n / size, rounded down
// (drop_last) or up. Throws InvalidArgument if sequences are cut: the number then depends on them.
int64_t batches_per_epoch(int64_t n, const MiniBatchQueueOptions& options);
// The same for data, also if sequences are cut. All epochs have the same number. Reads examples
// whose numbers of steps are not known. Thread-safe.
int64_t batches_per_epoch(const Datastore& data, const MiniBatchQueueOptions& options);
int64_t batches_per_epoch(const ExampleCache& cache, const MiniBatchQueueOptions& options);

// The observations of mini-batch `number`, which counts over all epochs from 0. Thread-safe.
std::vector<int64_t> observations_of(const Datastore& data, const MiniBatchQueueOptions& options,
                                     int64_t number);

// Throws InvalidArgument for options that cannot work with n observations of any kind: sizes below
// 1, a mini-batch larger than the data with drop_last, invalid ranges of augmentation or noise.
// Thread-safe.
void check_mini_batches(int64_t n, const MiniBatchQueueOptions& options);

// Returns n x classes floats: 1 at the label, otherwise 0. Throws InvalidArgument, naming the
// label, if it is out of range. Thread-safe.
Tensor one_hot(std::span<const int32_t> labels, int64_t classes);

// Returns the digest of a mini-batch's indices, as in MiniBatch::observations_digest.
Digest digest_observations(const std::vector<int64_t>& observations);

// Returns the mini-batches from (first_epoch, first_batch) to the end of the last epoch, in order.
// Their content depends on the datastore, the sizes and the options except `threads`, `prefetch`,
// `helped`, `device` and `cache_bytes`. It does not depend on the start.
// has_data(), next(), reset(), channels() and shuffle() must not be called by several threads at
// the same time.
class MiniBatchQueue {
 public:
  // Starts the threads. `inputs`: for each input of the examples channels x rows x columns of
  // images (1 or 3 channels), or the shape of arrays, such as Network::input_shapes(). Throws
  // InvalidArgument for inputs that do not fit the data, and for options that cannot work: sizes
  // below 1, a mini-batch larger than the data with drop_last, no observations, a start out of
  // range, another number of targets than observations, images or targets of different sizes in an
  // example if images are translated, rotated, scaled, sheared or cut at random, only one of images
  // and targets cut at random, noise or own_augmentation without augment_inputs. Throws Unsupported
  // for augmentation or noise without images or sequences that it changes, and for a device that
  // cannot be used. first_batch may equal the number of batches per epoch; the next epoch follows.
  MiniBatchQueue(const DatastorePtr& data, const std::vector<Shape>& inputs,
                 MiniBatchQueueOptions options, int64_t first_epoch = 0, int64_t first_batch = 0);
  // For trainers: the same of a cache, whatever options.cache_bytes is.
  MiniBatchQueue(std::shared_ptr<const ExampleCache> cache, MiniBatchQueueOptions options,
                 int64_t first_epoch = 0, int64_t first_batch = 0);
  // Stops the threads. Each one first finishes its current image.
  ~MiniBatchQueue();
  MiniBatchQueue(const MiniBatchQueue&) = delete;
  MiniBatchQueue& operator=(const MiniBatchQueue&) = delete;

  // Whether next() can return a mini-batch; false after the last epoch.
  bool has_data() const;
  // Returns the next mini-batch; waits for it. Its buffers are reused after the last pointer to it
  // is destroyed, so a running queue allocates no memory on the host. The mini-batch may outlive
  // the queue. Rethrows the exception of reading it (DataError), also on each further call. Throws
  // InvalidArgument at the end.
  std::shared_ptr<const MiniBatch> next();

  // Makes a few observations of the mini-batch that next() will return, or with `ahead` also of
  // later ones. This takes some microseconds if images are small. The call that makes the last
  // observations also runs `preprocess`. Returns false if there is nothing to do or `helped` has no
  // effect. Thread-safe, except during reset() and shuffle().
  bool help(bool ahead);

  // Goes to the first mini-batch of an epoch. Discards prepared mini-batches and a pending
  // exception. The mini-batches are those of a new queue. Throws InvalidArgument unless 0 <= epoch
  // <= max_epochs.
  void reset(int64_t epoch = 0);
  // Restarts at epoch 0 with the order and the draws of another seed. A queue that did not shuffle
  // now shuffles once.
  void shuffle(uint64_t seed);

  // Reads all examples and returns the statistics of each input, without augmentation, for
  // set_input_normalization(). Mini-batches that are prepared are made again. Throws DataError for
  // an example that cannot be read. Must not be called by several threads, like reset().
  std::vector<std::vector<ChannelSummary>> channels(ThreadPool& pool);
  int64_t batches_per_epoch() const;
  // Mean processor time, in seconds, of background threads per mini-batch since the start, reset()
  // or shuffle(). 0 before the first mini-batch. Thread-safe.
  double seconds_each() const;
  // Position of the mini-batch that next() will return.
  int64_t epoch() const;
  int64_t batch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
