// A network with its built-in loss, compiled for shards. All programs with a built-in loss use it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// What a shard's plan is made for.
struct ShardShape {
  int64_t rows = 0;
  // For each input of the network: of sequences the steps that the plan has room for, else 0. Empty
  // if no input is a sequence.
  std::vector<int64_t> steps = {};

  // Steps of the values of an array (ShardPlans::Array::sequence), 1 if it is not a sequence.
  int64_t steps_of(int sequence) const {
    return sequence < 0 ? 1 : steps.at(static_cast<size_t>(sequence));
  }
  auto operator<=>(const ShardShape&) const = default;
};

// Plans by the shapes of shards, on the network's device or another one. The first plan fixes the
// gradient layout. One thread at a time.
class ShardPlans {
 public:
  // Outputs of the plans, by number; from kFirstStatistic on come those that `statistics` names.
  static constexpr int kScores = 0, kLosses = 1, kFirstStatistic = 2;

  // What a plan reads: run.input(k) takes the rows of array k.
  struct Array {
    enum class Kind : uint8_t {
      values,   // of each observation, or of each of its steps
      factors,  // of the losses of own labels, then of others (images that are mixed)
      lengths,  // the steps of a sequence
      carried   // a state by row
    };
    std::string name;
    Shape shape;  // of an observation; of sequences of a step
    DType type = DType::u8;
    Kind kind = Kind::values;
    // The input whose steps the values of a sequence have, or whose lengths these are; -1: neither.
    int sequence = -1;
    // Bytes of an observation; of sequences of a step.
    size_t bytes() const { return static_cast<size_t>(shape.elements()) * size_of(type); }
  };

  // `inputs`: for each input layer u8 for images, f32 for arrays. Empty: u8. `loss`: "": network's.
  // `mixed`: images are mixed, so each has two labels.
  ShardPlans(const Network& network, Device device, DType precision, std::vector<DType> inputs = {},
             const std::string& loss = {}, bool mixed = false)
      : network_(network),
        device_(device),
        precision_(precision),
        types_(std::move(inputs)),
        loss_(loss.empty() ? network.loss() : loss),
        mixed_(mixed) {}

  // Compiles the plan on the first call. Throws InvalidArgument if the loss does not fit.
  std::shared_ptr<const Plan> plan(const ShardShape& shape);
  // The same for a number of rows. Sequences have a few steps then: for questions that do not
  // depend on their lengths.
  std::shared_ptr<const Plan> plan(int64_t rows);
  // A plan for `rows` rows of several shards, which leaves gradients of parameters to sums over
  // shards. Needs shards_together().
  std::shared_ptr<const Plan> plan_of_bundle(int64_t rows);

  // Divides all plans but those of bundles (Plan::kept_part()): the parameters with `true` do not
  // change. Drops the plans that were compiled before; gradient_layout() stays. On the CPU, and not
  // for networks with sequences or states by row, whose plans stay whole.
  void divide(std::vector<bool> frozen);

  // Before the first plan: the gradients of the parameters with `true` need not be summed over
  // shards. They are summed all the same where shards_together().
  void leave_out_of_sums(std::vector<bool> parameters) { left_out_ = std::move(parameters); }

  // The following functions need a first plan.
  const GradientLayout& gradient_layout() const { return layout_; }
  // Whether several shards may be computed together (Plan::shards_together()).
  bool shards_together() const { return together_; }
  bool labeled() const { return labeled_; }  // targets are labels, else images or arrays
  // The inputs of the network, in order, the lengths of those that are sequences, its states by
  // row, of images that are mixed the factors of losses and the other labels, then the labels or
  // targets.
  const std::vector<Array>& arrays() const { return arrays_; }
  size_t inputs() const { return inputs_; }
  // The array of the first state by row.
  size_t first_carry() const { return first_factor() - carries_.size(); }
  // The array of the first factor of losses; without them that of the targets.
  size_t first_factor() const { return arrays_.size() - (mixed_ ? 4 : 1); }
  bool mixed() const { return mixed_; }
  // Whether an input is a sequence.
  bool sequences() const { return first_carry() > inputs_; }
  // The input with the steps of the output, if that is a sequence, else -1.
  int output_sequence() const { return arrays_.back().sequence; }
  const std::vector<CombinedSequences>& combined() const { return combined_; }
  // The states by row that the network carries; their outputs are those of the plans.
  const std::vector<Carry>& carries() const { return carries_; }
  // Number of elements of all states of a row.
  int64_t carried_elements() const;
  // The most rows of a shard.
  int64_t most_rows() const { return most_rows_; }
  // Of an observation, or of a step: the number of classes, or the elements of an image.
  int64_t outputs() const { return outputs_; }
  // Where each pixel of an output has a label: their number, else 0.
  int64_t pixels() const { return pixels_; }
  const std::vector<MovingStatistics>& statistics() const { return statistics_; }
  // Of the plan that was compiled first since divide(); null: it is not divided.
  const KeptPart* kept_part() const { return first_ ? first_->kept_part() : nullptr; }
  // Number of elements of all means and variances.
  int64_t statistic_elements() const;

 private:
  std::shared_ptr<const Plan> compiled(const ShardShape& shape, bool bundle);
  // Sets arrays_.
  void describe(const LoweredNetwork& lowered, int target, const std::vector<DType>& types);

  const Network& network_;
  const Device device_;
  const DType precision_;
  const std::vector<DType> types_;
  const std::string loss_;
  const bool mixed_;
  std::vector<Array> arrays_;
  size_t inputs_ = 0;
  std::map<ShardShape, std::shared_ptr<const Plan>> plans_;
  std::map<int64_t, std::shared_ptr<const Plan>> plans_of_bundles_;
  std::shared_ptr<const Plan> first_;  // since divide()
  bool together_ = false;
  std::vector<bool> frozen_;    // by parameter; empty: plans are not divided
  std::vector<bool> left_out_;  // of sums over shards, by parameter; empty: none
  GradientLayout layout_;
  bool labeled_ = true;
  int64_t outputs_ = 0, pixels_ = 0;
  std::vector<MovingStatistics> statistics_;
  std::vector<Carry> carries_;
  std::vector<CombinedSequences> combined_;
  int64_t most_rows_ = 0;
};

// Rows of an array that a shard reads.
struct RowsOf {
  const std::byte* first = nullptr;
  size_t row_bytes = 0;  // of sequences of a step
  // Of sequences and of lengths: row i has the steps [offsets[i], offsets[i + 1]).
  const int64_t* offsets = nullptr;
  bool lengths = false;

  const std::byte* at(int64_t row) const { return first + static_cast<size_t>(row) * row_bytes; }
  int64_t length(int64_t row) const { return offsets[row + 1] - offsets[row]; }
  // The most steps of some rows.
  int64_t longest(const IndexRange& rows) const;
  // Copies rows to a plan's input; of sequences with room for `steps` steps, which zeros fill.
  void copy(const IndexRange& rows, int64_t steps, void* to) const;
};

// The shape of the plan for some rows of a mini-batch's arrays.
ShardShape shard_shape(const ShardPlans& plans, const std::vector<RowsOf>& arrays,
                       const IndexRange& rows);

// For each of the plans' arrays that of the mini-batch, in which it points: inputs by position,
// labels or targets by name. Those of states by row are left out (null). Throws InvalidArgument for
// a missing array, and for rows that differ from the plans' in number, size or type.
std::vector<RowsOf> batch_arrays(const MiniBatch& batch, const ShardPlans& plans);
// The array of that name after the first `inputs` ones, which have names of their own; null: none.
const RowArray* array_after(const MiniBatch& batch, size_t inputs, std::string_view name);

// What an iteration reads of the network's states by row, and leaves in them.
class CarriedRows {
 public:
  // For the carries of a network. `fresh`: all rows are read at their initial values. Throws
  // InvalidArgument if the network's states by row are not made.
  CarriedRows(const Network& network, const std::vector<Carry>& carries, bool fresh);
  CarriedRows() = default;

  // What all rows of carry number `k` read; valid as long as this object. One thread at a time.
  RowsOf read(size_t k);
  // A copy of what some rows read. Thread-safe.
  Tensor read(size_t k, const IndexRange& rows) const;
  // Takes what rows have left: for each carry n x shape, one after the other. All members of a
  // group take the rows of all shards, after the network's states were reset if they were fresh.
  void take(const IndexRange& rows, const float* left) const;
  // Number of elements that take() reads for `rows` rows.
  int64_t elements(int64_t rows) const;

 private:
  struct State {
    Tensor value, initial;  // all rows x shape; initial: if read() has made it
    float first = 0;        // the initial value of an element
    int64_t row = 0;        // elements of a row
  };
  std::vector<State> states_;
  bool fresh_ = false;
};

// Number of observations whose label has the highest score. Of equal scores the first counts.
int64_t count_correct(const float* scores, const int32_t* labels, int64_t rows, int64_t classes);

// Of labels by pixel: those that count (not kIgnoredLabel), and those with the highest score.
// `scores`: rows x classes x pixels.
struct PixelCounts {
  int64_t labels = 0, correct = 0;
};
PixelCounts count_pixels(const float* scores, const int32_t* labels, int64_t rows, int64_t classes,
                         int64_t pixels);

// Throws InvalidArgument, naming the layer and the observations, if counted statistics of a shard
// are of a single value.
void check_statistics(const std::vector<MovingStatistics>& statistics,
                      const std::vector<IndexRange>& shards,
                      const std::vector<const float*>& shard_statistics);

// Updates states from the statistics of a mini-batch. `shard_statistics`: for each shard and each
// of `statistics` all means, then all variances. mean = sum w_j mean_j; variance = sum w_j
// (variance_j + (mean_j - mean)^2), summed by the tree; StateRule describes other rules. w_j: the
// shard's share of observations, or of what counted statistics are of. Throws what
// check_statistics() throws, before it changes anything.
// `state(k)`: host memory of network state number k.
void follow_statistics(const std::vector<MovingStatistics>& statistics,
                       const std::vector<IndexRange>& shards,
                       const std::vector<const float*>& shard_statistics,
                       const std::function<float*(int k)>& state);

}  // namespace lockstep
