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
#include "lockstep/train/evaluation/kept_batches.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/programs/shard_plans.h"

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
  EvaluationKeeping keeping = {};
};

// What outputs are compared with: labels, other values (images or arrays), or nothing. Where the
// network has an output for each step, these are labels and values of steps.
enum class Against { labels, images, nothing };

// The shape of the plan for an observation with these lengths. `longest` of all observations, by
// input; 0: not a sequence, whose length does not matter. A function of the observation's own
// lengths (and of the longest of all, beyond which no plan has room), so that its plan does not
// depend on its neighbors; one for each power of two between the lengths.
ShardShape evaluated_shape(const std::vector<int64_t>& lengths,
                           const std::vector<int64_t>& longest);

// Observations of a batch that a plan of this shape computes together. Rows after them are padding.
struct EvaluatedPart {
  ShardShape shape;
  std::vector<int64_t> observations;
};

// Observations in batches of a fixed size, the last one padded. Sequences of a batch are computed
// in parts by their lengths, so that a long one costs the others nothing. Functions of observations
// and rows may be called by several threads of the pool, each with its own number.
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
  // metric_parts() of the network.
  const std::vector<MetricPart>& parts() const { return parts_; }
  bool on_cpu() const { return network_.device().is_cpu(); }
  // The classes of the labels. Empty if there are no labels.
  std::vector<std::string> classes() const;

  int64_t observations() const { return data_.images->size(); }
  // Outputs that are compared: one for each observation, or for each valid step of its sequence.
  // Those of all observations are numbered one after another.
  bool by_step() const { return !offsets_.empty(); }
  // Where each pixel of an output has a label: their number, else 0. An output has the scores of
  // all of them then, classes x pixels.
  int64_t pixels() const { return pixels_; }
  // Pairs of a class and a predicted one.
  int64_t pairs() const { return output_[0] * output_[0]; }
  // What is kept of outputs with labels: the predicted class of each; of labels by pixel, for each
  // chunk, the number of pixels of each pair of a class and a predicted one. All outputs', and
  // those of observations, which are whole chunks then.
  int64_t kept() const { return kept_of({0, observations()}).count; }
  IndexRange kept_of(const IndexRange& observations) const;
  IndexRange outputs_of(const IndexRange& observations) const;
  int64_t outputs() const { return outputs_of({0, observations()}).count; }
  // The label of an observation, or those of its steps or pixels. `memory` holds them if need be.
  std::span<const int32_t> labels_of(int64_t observation, std::vector<int32_t>& memory) const;
  // Losses of observations, summed, are divided by this number. Not of labels by pixel, whose
  // number only reading shows.
  int64_t loss_terms() const;
  int64_t size() const { return size_; }  // observations of a batch
  int64_t count() const { return (observations() + size_ - 1) / size_; }
  IndexRange rows(int64_t batch) const;
  int64_t chunks() const { return (observations() + kChunk - 1) / kChunk; }
  int64_t chunks_of_batch() const { return size_ / kChunk; }
  int64_t rows_of_chunk(int64_t chunk) const;

  // Whether batches are computed in parts: those of sequences. Others are one part.
  bool in_parts() const { return lengths_ > 0; }
  std::vector<EvaluatedPart> parts(const IndexRange& observations) const;
  // The shapes of all parts.
  std::vector<ShardShape> shapes() const;
  // Outputs of a row of such a part, valid or not.
  int64_t outputs_together(const ShardShape& shape) const;

  // The network for batches or parts of this shape, with its loss if plans compute it.
  LoweredNetwork lower(const ShardShape& shape) const;
  bool plans_have_loss() const { return against_ != Against::nothing && !data_.loss; }
  // Whether results of frozen layers may be kept (data().keeping).
  bool keeps() const { return data_.keeping.frozen && on_cpu() && !in_parts() && !data_.loss; }
  // Number of the plans' input for labels or targets. Those before it are the inputs, then the
  // lengths of those that are sequences.
  int target_input() const { return static_cast<int>(data_.images->inputs().size()) + lengths_; }
  // Bytes of an observation's label or target, with all steps of the plan.
  size_t wanted_bytes(const ShardShape& shape) const;

  // Fills a part. `to`: its inputs; `wanted`: its labels or targets, if there are any.
  void fill(const std::vector<uint8_t*>& to, void* wanted, const EvaluatedPart& part, int thread);
  // The same for the labels or targets alone.
  void fill_wanted(void* wanted, const EvaluatedPart& part, int thread);
  // Whether labels or targets are read from examples.
  bool wanted_from_examples() const { return pixels_ > 0 || against_ == Against::images; }
  // Of a batch that is one part the same in steps: fills the rows after the first `rows` with
  // zeros, tells the cache what will be read, and fills some rows of a batch that begins with
  // observation `first`.
  void clear_padding(const std::vector<uint8_t*>& to, void* wanted, int64_t rows) const {
    clear_padding(to, wanted, rows, {size_});
  }
  void expect(const IndexRange& observations) const;
  void fill_rows(const std::vector<uint8_t*>& to, void* wanted, const IndexRange& rows,
                 int64_t first, int thread);

  // The user's loss of each observation: the function's value, or the sum over the valid steps.
  std::vector<float> custom_losses(const IndexRange& observations, int thread);

 private:
  Network& network_;
  const EvaluatedData data_;
  const CachedTargets targets_;
  Against against_ = Against::nothing;
  void measure_sequences();
  void number_steps(const LoweredNetwork& lowered);
  void check_custom_targets() const;
  std::vector<float> custom_losses(const EvaluatedPart& part, int thread);
  ShardShape shape_of(int64_t observation) const;
  void clear_padding(const std::vector<uint8_t*>& to, void* wanted, int64_t rows,
                     const ShardShape& shape) const;
  void fill_row(const std::vector<uint8_t*>& to, void* wanted, int64_t row, int64_t observation,
                const ShardShape& shape, int thread);
  void fill_wanted_row(void* wanted, int64_t row, const uint8_t* example, int64_t observation,
                       const ShardShape& shape, int thread);
  void fill_sequence(size_t input, int64_t row, const uint8_t* example, const ShardShape& shape,
                     const std::vector<uint8_t*>& to) const;
  void fill_wanted_steps(int64_t row, const uint8_t* example, int64_t observation,
                         const ShardShape& shape, void* wanted) const;

  int64_t size_ = kChunk;
  int64_t pixels_ = 0;
  Shape output_;
  std::vector<MetricPart> parts_;
  // Of sequences: the steps of the longest by input (0: not a sequence), how many inputs have
  // lengths, and the input whose steps the output has.
  std::vector<int64_t> longest_;
  int lengths_ = 0;
  size_t steps_input_ = 0;
  std::vector<int64_t> offsets_;  // of outputs by step: those of each observation, then the end
  std::vector<std::vector<uint8_t>> scratch_;  // by thread
};

}  // namespace lockstep
