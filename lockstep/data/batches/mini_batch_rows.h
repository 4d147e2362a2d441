// The rows of mini-batches: examples from a cache, cut, augmented and with noise.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

// Makes the rows of a MiniBatchQueue. Thread-safe; several threads may make different rows of one
// mini-batch.
class MiniBatchRows {
 public:
  // Uses cache, targets, augmentations, noise and seed. Both arguments must stay alive.
  MiniBatchRows(const ExampleCache& cache, const MiniBatchQueueOptions& options);

  // The cache for a queue over a datastore: `inputs` are the shapes of the inputs, as in
  // MiniBatchQueue. Throws InvalidArgument if there is no datastore, or images as targets have no
  // size.
  static std::shared_ptr<const ExampleCache> cache_of(const DatastorePtr& data,
                                                      const std::vector<Shape>& inputs,
                                                      const MiniBatchQueueOptions& options);

  // Throws InvalidArgument and Unsupported for changes of inputs that cannot work with these data;
  // see MiniBatchQueue.
  static void check(const ExampleCache& cache, const MiniBatchQueueOptions& options);

  // Sizes a mini-batch for its observations.
  void begin(MiniBatch& batch) const;
  // Writes the label of a row.
  void label(MiniBatch& batch, int64_t row) const;
  // Writes inputs and target of a row. `scratch` is for ExampleCache::get().
  void make(MiniBatch& batch, int64_t row, std::vector<uint8_t>& scratch) const;
  // Whether rows are mixed with each other, once all of them are made.
  bool mixes() const { return options_.augmentation.mixes(); }
  // The rows with which these ones are mixed.
  static std::vector<IndexRange> mixed_with(const std::vector<IndexRange>& rows, int64_t n);
  // Mixes these rows, which are made like those of mixed_with(), and labels all rows.
  void mix(MiniBatch& batch, const std::vector<IndexRange>& rows) const;

 private:
  // An example of the cache, and where its images were cut.
  struct CutExample {
    Window where;
    Size2d size;
    const uint8_t* example;
  };

  bool size_sequences(MiniBatch& batch, size_t i) const;
  IndexRange segment_of(const MiniBatch& batch, int64_t steps) const;
  static int64_t key_of(const MiniBatch& batch, size_t row);
  Window window_of(int64_t epoch, int64_t key) const;
  static uint8_t* row_of(MiniBatch& batch, size_t array, size_t row);
  int64_t place_steps(MiniBatch& batch, size_t row, size_t k, const ExampleCache& cache,
                      const CachedValue& value, const uint8_t* example) const;
  void place_target(MiniBatch& batch, size_t row, const CutExample& input,
                    const AugmentationDraw* draw, std::vector<uint8_t>& scratch) const;
  void convert_target(uint8_t* row) const;
  void call_function(MiniBatch& batch, size_t row, int64_t key) const;
  void augment_steps(MiniBatch& batch, int64_t row, size_t k, int64_t steps) const;

  const ExampleCache& cache_;
  const MiniBatchQueueOptions& options_;
  const CachedTargets targets_;
  const bool changes_images_, changes_sequences_;
  std::vector<RowArray> arrays_;  // names, types and shapes: inputs, targets, labels
  bool has_labels_ = true;
  size_t labels_ = 0;  // their array
};

}  // namespace lockstep
