#include "lockstep/train/loop/memory_estimate.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/metrics/confusion_matrix.h"
#include "lockstep/engine/plan/compile.h"
#include "lockstep/engine/plan/kept_part.h"
#include "lockstep/train/evaluation/evaluated_batches.h"
#include "lockstep/train/evaluation/kept_batches.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/programs/shard_plans.h"

namespace lockstep {
namespace {

// Measured: the program with its libraries, and the kernels' overhead for each pass of a plan.
constexpr size_t kProgram = size_t{28} << 20;
constexpr size_t kPass = size_t{64} << 10;

// Bytes of the packed parameter copies that plans read, each copy once.
size_t packed_bytes(const std::vector<std::shared_ptr<const Plan>>& plans) {
  std::set<std::pair<int, std::string>> known;
  size_t bytes = 0;
  for (const auto& plan : plans) {
    for (const PlanBuffer& buffer : plan->state().buffers) {
      if (buffer.storage != PlanBuffer::Storage::parameter) continue;
      const bool own = buffer.spec.row_major() && buffer.spec.dtype == DType::f32;
      if (!own && known.emplace(buffer.slot, buffer.spec.to_string()).second) {
        bytes += buffer.spec.bytes();
      }
    }
  }
  return bytes;
}

// The lengths of an input that is a sequence, as far as they are known without reading.
struct Lengths {
  std::vector<int64_t> all;
  int64_t longest = 0;  // 0: not a sequence
  double mean = 1;
};

Lengths lengths_of(const Datastore& data, size_t input) {
  Lengths found{.all = {}, .longest = 1};
  double sum = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    found.all.push_back(data.steps(i, input).value_or(1));
    found.longest = std::max(found.longest, found.all.back());
    sum += static_cast<double>(found.all.back());
  }
  if (data.size() > 0) found.mean = std::max(1.0, sum / static_cast<double>(data.size()));
  return found;
}

// Of the network's inputs, in order.
std::vector<Lengths> lengths_of(const Network& network, const Datastore& data) {
  std::vector<Lengths> found;
  for (const size_t from : check_inputs(network, data)) {
    found.push_back(data.spec().inputs[from].sequence ? lengths_of(data, from) : Lengths());
  }
  return found;
}

bool any_sequence(const std::vector<Lengths>& inputs) {
  return std::ranges::any_of(inputs, [](const Lengths& input) { return input.longest > 0; });
}

// The data that all parts of an estimate share.
class Estimate {
 public:
  Estimate(const Network& network, const TrainingData& data, const TrainingOptions& options,
           const DatastorePtr& test)
      : network_(network),
        data_(data),
        test_(test),
        options_(options),
        ranges_(cut_into_shards(std::min<int64_t>(options.mini_batch_size, data.training->size()),
                                options.shards.size)),
        threads_(static_cast<size_t>(std::min(options.threads, shards()))) {
    const std::vector<ValueSpec> inputs = data.training->spec().inputs;
    for (const size_t from : check_inputs(network, *data.training)) {
      types_.push_back(inputs[from].kind == ValueKind::image ? DType::u8 : DType::f32);
    }
    inputs_ = lengths_of(network, *data.training);
    ShardPlans plans(network, Device{}, options.precision.dtype(), types_,
                     options.trained_loss(network.loss(), labels_pixels(network)),
                     data.augmentation.mixes());
    if (options.max_epochs > 1 && changes_between_epochs(data).empty()) {
      plans.divide(frozen_parameters());
    }
    plans.leave_out_of_sums(never_learning(network, options));
    std::set<int64_t> sizes;
    for (const IndexRange& range : ranges_) sizes.insert(range.count);
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      plans_.push_back(plans.plan(largest_shape(*size)));
    }
    if (const KeptPart* const part = plans.kept_part(); part != nullptr && part->has_parameters) {
      kept_row_ = part->row_bytes();
    }
    kept_validation_row_ = kept_row_of(data.validation);
    if (kept_row_ == 0 && plans.shards_together()) measure_bundles(plans);
    for (const auto& [name, shape] : network.value_shapes()) {
      values_ += static_cast<size_t>(shape.elements()) * sizeof(float);
    }
    row_states_ = sizeof(float) * static_cast<size_t>(plans.carried_elements()) *
                  static_cast<size_t>(options.mini_batch_size);
    parameters_ = static_cast<size_t>(network.parameter_elements()) * sizeof(float);
  }

  MemoryEstimate all() {
    MemoryEstimate estimate;
    const size_t solver = parameters_ * solver_arrays(options_);
    const size_t best = options_.validation.output_network == OutputNetwork::best ? values_ : 0;
    estimate.values = values_ + packed_bytes(plans_) + solver + best + row_states_;
    estimate.gradients = gradients();
    size_t passes = 0, arena = bundle_arena_;
    for (const auto& plan : plans_) {
      arena = std::max(arena, plan->arena_bytes());
      passes += plan->passes().size() * shapes_of_shards();
    }
    // Plans of all shapes share the memory of a thread. Then rows that shards leave, for the sum
    // and its exchange, and those of an epoch's beginning.
    estimate.shards = arena * threads_ + kept_ + 3 * row_states_ + batches(data_.validation);
    estimate.images = caches() + mini_batches();
    // The checkpoint's bytes exist in addition to the values. The model is saved later and is
    // smaller.
    estimate.saving = values_ + solver + best + row_states_;
    const auto listed = static_cast<size_t>(data_.training->size() +
                                            (data_.validation ? data_.validation->size() : 0));
    estimate.program = kProgram + passes * kPass + listed * 200;
    estimate.evaluation = evaluation(data_.validation) + evaluation(test_) +
                          batches(data_.validation) + batches(test_);
    return estimate;
  }

 private:
  int64_t shards() const { return static_cast<int64_t>(ranges_.size()); }

  // Of the first epoch, if results of frozen layers may be kept; else empty.
  std::vector<bool> frozen_parameters() const {
    if (!options_.keeps_features()) return {};
    std::vector<bool> frozen;
    const size_t parameters = network_.parameter_shapes().size();
    for (const auto& [name, shape] : network_.value_shapes()) {
      if (frozen.size() < parameters) frozen.push_back(is_frozen(name, options_.freeze));
    }
    return frozen;
  }

  // The shape of shards of `rows` rows with the longest sequences.
  ShardShape largest_shape(int64_t rows) const {
    ShardShape shape{rows};
    for (size_t k = 0; any_sequence(inputs_) && k < inputs_.size(); ++k) {
      const int64_t cut = options_.data.sequence_length, longest = inputs_[k].longest;
      const int64_t steps = cut > 0 ? std::min(longest, cut) : longest;
      shape.steps.push_back(steps > 0 ? steps_capacity(steps) : 0);
    }
    return shape;
  }

  // The most shapes that shards of one number of rows have.
  size_t shapes_of_shards() const {
    std::set<std::vector<int64_t>> found;
    const int64_t cut = options_.data.sequence_length;
    for (int64_t i = 0; any_sequence(inputs_) && i < data_.training->size(); ++i) {
      std::vector<int64_t> steps;
      for (const Lengths& input : inputs_) {
        if (input.longest == 0) continue;
        const int64_t own = input.all[static_cast<size_t>(i)];
        steps.push_back(steps_capacity(cut > 0 ? std::min(own, cut) : own));
      }
      found.insert(std::move(steps));
    }
    return std::max<size_t>(found.size(), 1);
  }

  // The plan of evaluations for parts of a shape.
  Plan evaluation_plan(const ShardShape& shape, const Unchanging* unchanging) const {
    LoweredNetwork lowered =
        network_.lower(shape.rows, {.training = false, .inputs = types_, .steps = shape.steps});
    for (const int output : lowered.outputs) lowered.graph.mark_output(output);
    PlanOptions options;
    options.unchanging = unchanging;
    return {lowered.graph, network_.parameter_shapes(), options};
  }

  // What evaluations of `store` compute with: the memory of the largest part on each thread.
  size_t batches(const DatastorePtr& store) const {
    if (!store || store->size() == 0) return 0;
    const std::vector<Lengths> inputs = lengths_of(network_, *store);
    std::vector<int64_t> longest;
    for (const Lengths& input : inputs) longest.push_back(input.longest);
    constexpr int64_t rows = EvaluatedBatches::kChunk;
    const ShardShape shape =
        any_sequence(inputs) ? evaluated_shape(longest, longest) : ShardShape{rows};
    const int64_t threads = std::min(options_.threads, (store->size() + rows - 1) / rows);
    return evaluation_plan(shape, nullptr).arena_bytes() * static_cast<size_t>(threads);
  }

  // Bytes of the results of frozen layers that validations keep of an observation.
  size_t kept_row_of(const DatastorePtr& validation) const {
    if (!validation || !options_.keeps_features() || any_sequence(inputs_)) return 0;
    constexpr int64_t rows = EvaluatedBatches::kChunk;
    const Unchanging unchanging{.rows = rows,
                                .parameters = frozen_parameters(),
                                .states = constant_states(network_),
                                .inputs = std::vector<bool>(inputs_.size(), true),
                                .over_rows = {}};
    const Plan plan = evaluation_plan({rows}, &unchanging);
    return plan.kept_part()->has_parameters ? plan.kept_part()->row_bytes() : 0;
  }

  // Of shards that are computed together: the memory of a thread, and of the rows that are kept.
  void measure_bundles(ShardPlans& plans) {
    const auto bundles =
        cut_into_bundles({0, shards()}, ranges_.front().count, static_cast<int>(threads_));
    const auto plan = plans.plan_of_bundle(bundles.front().count * ranges_.front().count);
    bundle_arena_ = plan->arena_bytes();
    std::vector<kernels::ShardLeaf> leaves;
    for (const IndexRange& range : ranges_) leaves.push_back({.rows = range.count});
    for (const PlanShardSum& sum : plan->shard_sums()) kept_ += sum.sum.kept_bytes(leaves);
  }

  // Gradients of each thread, the sum with its slices, and subtrees that wait.
  size_t gradients() const {
    const GradientLayout& layout = plans_.front()->gradient_layout();
    const auto waiting = std::min<size_t>(
        ranges_.size() / 2, static_cast<size_t>(std::bit_width(ranges_.size())) + threads_);
    return layout.bytes * threads_ + layout.summed_bytes * (3 + waiting) + parameters_;
  }

  // Of a mean observation.
  size_t observation_bytes() const {
    const std::vector<Shape> shapes = network_.input_shapes();
    double bytes = 0;
    for (size_t k = 0; k < shapes.size(); ++k) {
      const auto step = static_cast<size_t>(shapes[k].elements()) * size_of(types_[k]);
      bytes += inputs_[k].mean * static_cast<double>(step);
    }
    return static_cast<size_t>(bytes);
  }
  // Targets that are images are floats in mini-batches.
  size_t target_bytes(bool cached) const {
    const auto target = target_spec(*data_.training, data_.training_targets);
    if (!target) return sizeof(int32_t);
    if (target->pixel_labels()) {
      const Shape output = network_.output_shapes().at(0);
      return static_cast<size_t>(output[1] * output[2]) * (cached ? 1 : sizeof(int32_t));
    }
    return static_cast<size_t>(network_.output_shapes().at(0).elements()) *
           (target->kind == ValueKind::array || !cached ? sizeof(float) : 1);
  }

  // About the bytes of a pair of classes that occurs, as a count, in JSON and in the page; of a
  // cell of a confusion matrix in full; and of a class.
  size_t evaluation(const DatastorePtr& store) const {
    constexpr size_t pair = 200, cell = 48, each = 400;
    if (!store) return 0;
    const auto n = static_cast<size_t>(store->size());
    const size_t classes = data_.training->classes().size();
    // Pairs of classes: of each thread's pixels, or of each chunk's that workers share.
    if (has_pixel_labels(*data_.training)) {
      constexpr auto chunk = static_cast<size_t>(EvaluatedBatches::kChunk);
      const size_t chunks = (n + chunk - 1) / chunk;
      const size_t tables =
          options_.workers.count > 0 ? chunks : static_cast<size_t>(options_.threads) + 1;
      return n * 8 + tables * classes * classes * sizeof(int64_t);
    }
    if (target_spec(*data_.training, data_.training_targets)) return n * 16;
    const bool full = classes <= static_cast<size_t>(ConfusionMatrix::kMostInFull);
    return n * 16 + classes * each + std::min(n, classes * classes) * pair +
           (full ? classes * classes * cell : 0);
  }

  size_t caches() const {
    const size_t budget = static_cast<size_t>(options_.data.cache_mib) << 20;
    const auto images = [](const DatastorePtr& store) {
      return store ? static_cast<size_t>(store->size()) : 0;
    };
    const size_t own_target = data_.training->spec().target ? target_bytes(true) : 0;
    size_t bytes =
        (images(data_.training) + images(data_.validation)) * (observation_bytes() + own_target);
    if (data_.training_targets && data_.training_targets != data_.training) {
      bytes += images(data_.training_targets) * target_bytes(true);
    }
    if (data_.validation_targets && data_.validation_targets != data_.validation) {
      bytes += images(data_.validation_targets) * target_bytes(true);
    }
    bytes += images(data_.training) * kept_row_;
    bytes += images(data_.validation) * kept_validation_row_;
    return std::min(bytes, budget);
  }

  size_t mini_batches() const {
    const MiniBatchQueueOptions queue = mini_batches_of(data_, options_);
    return static_cast<size_t>(queue.prefetch + queue.threads + 2) *
           static_cast<size_t>(options_.mini_batch_size) *
           (observation_bytes() + target_bytes(false));
  }

  const Network& network_;
  const TrainingData& data_;
  const DatastorePtr test_;
  const TrainingOptions& options_;
  std::vector<DType> types_;  // of the inputs
  std::vector<Lengths> inputs_;
  const std::vector<IndexRange> ranges_;            // of a full mini-batch
  const size_t threads_;                            // compute threads
  std::vector<std::shared_ptr<const Plan>> plans_;  // largest shards first
  size_t values_ = 0, parameters_ = 0, row_states_ = 0, bundle_arena_ = 0, kept_ = 0;
  // Of the results of frozen layers, of an observation.
  size_t kept_row_ = 0, kept_validation_row_ = 0;
};

}  // namespace

MemoryEstimate estimate_memory(const Network& network, const TrainingData& data,
                               const TrainingOptions& options, const DatastorePtr& test) {
  TrainingOptions placed = options;
  set_shard_size(network, Device(), placed);
  return Estimate(network, data, placed.resolved(), test).all();
}

}  // namespace lockstep
