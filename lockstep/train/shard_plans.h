// A network with its loss, compiled for shards: what all kinds of training steps share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/training_step.h"

namespace lockstep {

// Plans by size of the shard, on the network's device or another; the first decides how gradients
// lie. One thread at a time.
class ShardPlans {
 public:
  // Outputs of the plans, by number; from kFirstStatistic on come those that `statistics` names.
  static constexpr int kScores = 0, kLosses = 1, kFirstStatistic = 2;

  // `inputs`: u8 where these are images, f32 where they are arrays.
  ShardPlans(const Network& network, DType precision, DType inputs = DType::u8)
      : ShardPlans(network, network.device(), precision, inputs) {}
  ShardPlans(const Network& network, Device device, DType precision, DType inputs = DType::u8)
      : network_(network), device_(device), precision_(precision), inputs_(inputs) {}

  // Compiled when first asked for. Throws InvalidArgument for a network that does not fit its loss.
  std::shared_ptr<const Plan> plan(int64_t size);

  // After the first plan:
  const GradientLayout& gradient_layout() const { return layout_; }
  bool labelled() const { return labelled_; }    // labels are learned, else images or arrays
  const Shape& input() const { return input_; }  // of an observation
  size_t input_bytes() const { return static_cast<size_t>(input_.elements()) * size_of(inputs_); }
  int64_t outputs() const {
    return outputs_;
  }  // of an observation: classes, or an image's elements
  const std::vector<MovingStatistics>& statistics() const { return statistics_; }
  // Elements of all means and variances together.
  int64_t statistic_elements() const;

 private:
  const Network& network_;
  const Device device_;
  const DType precision_, inputs_;
  Shape input_;
  std::map<int64_t, std::shared_ptr<const Plan>> plans_;
  GradientLayout layout_;
  bool labelled_ = true;
  int64_t outputs_ = 0;
  std::vector<MovingStatistics> statistics_;
};

// Throws InvalidArgument for a mini-batch of more shards than the step was made for, for inputs of
// another size or type than the plans', and for targets of another size than the network's output.
void check_batch(const MiniBatch& batch, size_t shards, size_t most_shards,
                 const ShardPlans& plans);

// Observations whose label has the highest score, the first of equal ones.
int64_t count_correct(const float* scores, const int32_t* labels, int64_t rows, int64_t classes);

// Follows the statistics of a mini-batch. `shard_statistics`: by shard, for each of `statistics`
// first all means, then all variances. mean = sum w_j mean_j; variance = sum w_j (variance_j +
// (mean_j - mean)^2), by the tree; other rules as StateRule says. `state(k)`: host memory of
// network state number k.
void follow_statistics(const std::vector<MovingStatistics>& statistics,
                       const std::vector<ShardRange>& shards,
                       const std::vector<const float*>& shard_statistics,
                       const std::function<float*(int k)>& state);

}  // namespace lockstep
