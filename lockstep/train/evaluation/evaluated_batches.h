// The batches of an evaluation: which observations each one has, and what the network gets of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

// The evaluated data: cached images with noise, and labels or other images to compare with.
struct EvaluatedData {
  std::shared_ptr<const ExampleCache> images;
  std::shared_ptr<const ExampleCache> targets =
      {};  // null: those of the examples, or labels, if the network's loss uses them
  InputNoise noise = {};
  uint64_t seed = 0;       // of the noise
  TrainingLoss loss = {};  // in place of the network's
  bool compares = true;    // false: outputs alone, which need not fit any loss
  // Where a device other than the CPU evaluates the network's own loss: the type of products, and
  // the choice of algorithms, else that of the thread.
  DType precision = DType::f32;
  std::optional<kernels::Choice> choice = {};
};

// What outputs are compared with: labels, other values (images or arrays), or nothing. Where the
// network has an output for each step, these are labels and values of steps.
enum class Against { labels, images, nothing };

// Observations in batches of a fixed size, the last one padded. Functions of observations and rows
// may be called by several threads of the pool, each with its own number.
class EvaluatedBatches {
 public:
  // The size of batches on the CPU. On other devices the network sets a multiple of it. Metrics
  // take observations in chunks of this size, which are the same on every device.
  static constexpr int64_t kChunk = 64;

  // The network must outlive it. `threads`: of the pool.
  EvaluatedBatches(Network& network, EvaluatedData data, int threads);

  Network& network() const { return network_; }
  const EvaluatedData& data() const { return data_; }
  const CachedTargets& targets() const { return targets_; }
  Against against() const { return against_; }
  // Of one observation, or of a step.
  const Shape& output() const { return output_; }
  bool on_cpu() const { return network_.device().is_cpu(); }
  // The classes of the labels. Empty if there are no labels.
  std::vector<std::string> classes() const;

  int64_t observations() const { return data_.images->size(); }
  // Outputs that are compared: one for each observation, or for each valid step of its sequence.
  // Those of all observations are numbered one after another.
  bool by_step() const { return !offsets_.empty(); }
  IndexRange outputs_of(const IndexRange& observations) const;
  int64_t outputs() const { return outputs_of({0, observations()}).count; }
  // Outputs of a computed batch are this many for each observation, valid or not.
  int64_t outputs_together() const { return by_step() ? steps_of_output_ : 1; }
  // The label of an observation, or those of its steps. `memory` holds them if need be.
  std::span<const int32_t> labels_of(int64_t observation, std::vector<int32_t>& memory) const;
  int64_t size() const { return size_; }  // observations of a batch
  int64_t count() const { return (observations() + size_ - 1) / size_; }
  IndexRange rows(int64_t batch) const;
  int64_t chunks() const { return (observations() + kChunk - 1) / kChunk; }
  int64_t chunks_of_batch() const { return size_ / kChunk; }
  int64_t rows_of_chunk(int64_t chunk) const;

  // The network for batches of `rows` rows, with its loss if plans compute it.
  LoweredNetwork lower(int64_t rows) const;
  bool plans_have_loss() const { return against_ != Against::nothing && !data_.loss; }
  // Number of the plans' input for labels or targets. Those before it are the inputs, then the
  // lengths of those that are sequences.
  int target_input() const { return static_cast<int>(data_.images->inputs().size()) + lengths_; }
  // Bytes of an observation's label or target, with all steps of the plan.
  size_t wanted_bytes() const;

  // Fills a batch. `to`: its inputs; `wanted`: its labels or targets, if there are any.
  void fill(const std::vector<uint8_t*>& to, void* wanted, const IndexRange& observations,
            int thread);
  // The same in parts: fills the rows after the first `rows` with zeros, tells the cache what will
  // be read, and fills some rows of a batch that begins with observation `first`.
  void clear_padding(const std::vector<uint8_t*>& to, void* wanted, int64_t rows) const;
  void expect(const IndexRange& observations) const;
  void fill_rows(const std::vector<uint8_t*>& to, void* wanted, const IndexRange& rows,
                 int64_t first, int thread);

  // The user's loss of a batch with these observations.
  std::vector<float> custom_losses(const IndexRange& observations, int thread);

 private:
  Network& network_;
  const EvaluatedData data_;
  const CachedTargets targets_;
  Against against_ = Against::nothing;
  void measure_sequences();
  void number_steps(const LoweredNetwork& lowered);
  void fill_sequence(size_t input, int64_t row, const uint8_t* example,
                     const std::vector<uint8_t*>& to) const;
  void fill_wanted_steps(int64_t row, const uint8_t* example, int64_t observation,
                         void* wanted) const;

  int64_t size_ = kChunk;
  Shape output_;
  // Of sequences: the steps of each input in plans, and how many inputs have lengths.
  std::vector<int64_t> steps_;
  int lengths_ = 0;
  int64_t steps_of_output_ = 1;
  std::vector<int64_t> offsets_;  // of outputs by step: those of each observation, then the end
  std::vector<std::vector<uint8_t>> scratch_;  // by thread
};

}  // namespace lockstep
