// Checks that train() makes before it reads images, and the choice of its device.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/nn/layers/normalized_values.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/input/cut_sequences.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/loop/population_statistics.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/programs/shard_plans.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

namespace {

bool has_sequences(const Network& network) {
  return std::ranges::any_of(network.inputs(), &NetworkValue::sequence);
}

// Compiles a shard of one observation. Throws Unsupported where the device cannot compute it.
void try_shard(const Network& network, Device device, const TrainingOptions& given,
               const TrainingLoss& loss) {
  const DType precision = given.precision.dtype();
  if (!loss) {
    ShardPlans(network, device, precision, {},
               given.trained_loss(network.loss(), labels_pixels(network)))
        .plan(1);
    return;
  }
  const std::vector<DType> inputs(network.input_shapes().size(), DType::u8);
  LoweredNetwork lowered = network.lower(1, {.training = true, .inputs = inputs});
  PlanOptions options;
  options.gradients = true;
  options.precision = precision;
  for (const int value : lowered.outputs) {
    options.differentiated.push_back(lowered.graph.mark_output(value));
  }
  Plan(lowered.graph, network.parameter_shapes(), options, device);
}

}  // namespace

Device resolve_training_device(const Network& network, const TrainingOptions& options,
                               const TrainingLoss& loss) {
  return kernels::resolve_device(options.device, [&](Device device) {
    // A GPU's limits are found by compiling a shard of one observation, without an update.
    if (device == Device{}) return;
    try_shard(network, device, options, loss);
    kernels::functions_for(device).reorder({Shape{1}, DType::f32, nullptr},
                                           {Shape{1}, DType::f32, nullptr});
    try_updates(device, options);
  });
}

namespace {

// Refuses mini-batches, the last one included, with shards whose observations a layer cannot
// normalize: it would give 0, so nothing before it would learn.
void check_normalization(const Network& network, int64_t observations,
                         const TrainingOptions& options, const TrainingLoss& loss) {
  TrainingOptions placed = options;
  Device device;
  if (options.device == "auto") {
    device = resolve_training_device(network, options, loss);
  } else if (options.device.starts_with("cuda")) {
    device = parse_device("cuda:0");
  }
  set_shard_size(network, device, placed);
  const int64_t shard_size = placed.shards.size;
  std::vector<int64_t> sizes{std::min(options.mini_batch_size, observations)};
  const int64_t rest = observations % options.mini_batch_size;
  const bool keeps = options.data.last_mini_batch == LastMiniBatch::keep;
  if (keeps && rest > 0 && rest != sizes[0]) sizes.push_back(rest);
  for (const int64_t size : sizes) {
    const int64_t shards = (size + shard_size - 1) / shard_size;
    const LoweredNetwork lowered = network.lower(size / shards, {.training = true});
    const auto found = find_normalized_alone(lowered);
    if (!found) continue;
    if (!found->over_observations) require_values_to_normalize(lowered, "[training] ");
    const bool last = size == rest && keeps;
    throw InvalidArgument(
        fmt::format("[training] the layer `{}` would normalize single numbers, which gives 0 "
                    "whatever they are: {} mini-batch of {} with shard_size = {} has a shard of 1 "
                    "observation",
                    found->layer, last ? "the last" : "a", size, shard_size),
        last ? "set last_mini_batch = \"drop\", or change mini_batch_size or shard_size"
             : "raise shard_size, or mini_batch_size if it is 1");
  }
}

// Class names are text in models, logs and results.
void check_class_names(const Datastore& data, const std::vector<std::string>& classes) {
  for (const std::string& name : classes) {
    if (is_utf8(name)) continue;
    throw InvalidArgument("[data] the class `" + printable(name) + "` of " + data.describe() +
                              " has a name that is not UTF-8, so a model cannot contain it",
                          "rename the folder or the label; convmv can rename many at once");
  }
}

void check_loss(const Network& network, const TrainingData& data, const TrainingOptions& options) {
  if (data.loss.by_step && !has_sequences(network)) {
    throw InvalidArgument("[training] the loss " + data.loss.name +
                              " of the data is by step, but no input of the network is a sequence",
                          "leave out TrainingLoss::by_step: it has one value for each observation");
  }
  if (data.loss.name.empty()) {
    throw InvalidArgument("[training] the loss of the data has no name",
                          "checkpoints and receipts contain it: set TrainingLoss::name");
  }
  if (!options.class_weights.empty()) {
    throw InvalidArgument(
        "[training] class_weights weigh the network's loss, and the data has the "
        "loss " +
            data.loss.name,
        "weigh the observations in that function");
  }
  if (options.label_smoothing > 0) {
    throw InvalidArgument(
        "[training] label_smoothing is for the network's loss, and the data has the loss " +
            data.loss.name,
        "smooth the labels in that function");
  }
}

// Whether validations have what they are compared by.
void check_objective(const TrainingData& data, const TrainingOptions& options) {
  const std::string& objective = options.validation.objective;
  const bool labels = learns_labels(*data.training, data.training_targets) && !data.loss;
  if (objective != "accuracy" || labels) return;
  throw InvalidArgument("[training] objective = accuracy needs labels to learn" +
                            (data.loss ? " by the network's own loss" : std::string()),
                        "\"loss\", or a metric of the data");
}

// Refuses what cannot be cut into segments, by name.
void check_lengths_of(const Network& network, const TrainingOptions& options) {
  for (const auto& [name, value] : {std::pair{"sequence_length", options.data.sequence_length},
                                    std::pair{"group_by_length", options.data.group_by_length}}) {
    if (value == 0 || has_sequences(network)) continue;
    throw InvalidArgument(fmt::format("[training] {} = {} is for sequences, but no input of the "
                                      "network is one",
                                      name, value),
                          "sequence_input without a length takes sequences");
  }
  if (options.data.sequence_length == 0) return;
  const std::string why =
      "[training] sequence_length = " + std::to_string(options.data.sequence_length) +
      " cuts sequences, but ";
  if (const NetworkValue output = network.outputs().at(0); !output.sequence) {
    throw InvalidArgument(why + "the network gives one result for a whole sequence (layer `" +
                              output.name + "`), so segments have no targets",
                          "leave sequence_length out, or learn targets by step");
  }
  const int64_t length = options.data.sequence_length;
  if (const std::string layer = layer_that_segments_change(network, length); !layer.empty()) {
    throw InvalidArgument(
        why + "the layer `" + layer + "` has other results for segments than for whole sequences",
        "lstm, gru and rnn with carry_state = true, not bidirectional, and layers "
        "that are applied to each step alone can be cut");
  }
}

}  // namespace

std::vector<double> balanced_class_weights(const Datastore& training, int threads) {
  const std::vector<std::string>& classes = training.classes();
  if (classes.empty() || (classes.size() == 1 && classes[0].empty())) {
    throw InvalidArgument(
        "[training] class_weights = balanced needs observations with classes, "
        "but those of " +
        training.describe() + " have none");
  }
  const std::vector<int64_t> counts = has_pixel_labels(training)
                                          ? count_each_pixel_label(training, threads)
                                          : count_each_label(training);
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto present = std::count_if(counts.begin(), counts.end(), [](int64_t n) { return n > 0; });
  std::vector<double> weights;
  for (const int64_t count : counts) {
    weights.push_back(count == 0 ? 1.0
                                 : static_cast<double>(all) / static_cast<double>(present * count));
  }
  return weights;
}

void check_training(const Network& network, const TrainingData& data,
                    const TrainingOptions& options) {
  options.check();
  refuse_stray_environment();
  if (!data.training || data.training->size() == 0) {
    throw InvalidArgument("[training] there are no training observations");
  }
  network.check();
  if (!network.initialized()) {
    throw InvalidArgument("[training] the network is not initialized",
                          "call network.initialize(seed) first");
  }
  check_inputs(network, *data.training);
  check_changes(data);
  const std::optional<ValueSpec> targets = target_spec(*data.training, data.training_targets);
  if (learns_labels(*data.training, data.training_targets)) {
    check_class_names(*data.training, learned_classes(*data.training, data.training_targets));
  }
  if (data.loss) {
    check_loss(network, data, options);
  } else {
    (void)options.trained_loss(network.loss(), labels_pixels(network));
    check_fits(network, *data.training, data.training_targets);
  }
  if (data.validation) {
    if (data.validation->size() > 0) check_inputs(network, *data.validation);
    const bool has_targets = target_spec(*data.validation, data.validation_targets).has_value();
    if (learns_labels(*data.training, data.training_targets) &&
        learned_classes(*data.validation, data.validation_targets) !=
            learned_classes(*data.training, data.training_targets)) {
      throw InvalidArgument("[training] training and validation data have different classes");
    }
    if (has_targets != targets.has_value()) {
      throw InvalidArgument(
          "[training] training and validation data must both have targets, or none");
    }
    if (has_targets && !data.loss) check_fits(network, *data.validation, data.validation_targets);
  }
  if (options.data.sampling == Sampling::balanced) {
    const std::vector<std::string>& classes = data.training->classes();
    if (targets || classes.empty() || (classes.size() == 1 && classes[0].empty())) {
      throw InvalidArgument(
          "[training] sampling = \"balanced\" needs observations with classes, but " +
              data.training->describe() + " has " + (targets ? "targets" : "none"),
          "leave sampling out");
    }
  }
  if (!options.class_weights.empty() && network.outputs().at(0).sequence) {
    throw Unsupported(
        "[training] class_weights are for one label for each observation, but the "
        "network has an output for each step",
        "use an expression as the loss: cross_entropy(output, target, "
        "weights=[...])");
  }
  if (!options.class_weights.empty()) {
    const size_t classes = data.training->classes().size();
    const bool unlabeled = targets && !targets->pixel_labels();
    if (unlabeled || options.class_weights.size() != classes) {
      throw InvalidArgument(
          "[training] class_weights must have " +
          (unlabeled ? "no entries where there are targets"
                     : "an entry for each of the " + counted(classes, "class", "classes")) +
          ", received " + std::to_string(options.class_weights.size()));
    }
  }
  check_frozen(network, options.freeze);
  check_unfreezing(network, options);
  if (options.precision.type == Precision::tf32) {
    const Device device = resolve_training_device(network, options, data.loss);
    if (device.is_cpu()) {
      throw Unsupported("[training] precision = tf32 is supported only on GPUs",
                        "set precision = \"fp32\", or \"bf16\" if the processor supports it");
    }
    kernels::check_tf32(kernels::table_for(device));
  }
  if (is_narrow(options.precision.dtype())) {
    kernels::check_precision(
        kernels::table_for(resolve_training_device(network, options, data.loss)),
        options.precision.dtype());
  }
  check_objective(data, options);
  metrics_for(options.resolved().validation.metrics, options.validation.custom_metrics,
              metric_problem(network, *data.training, data.training_targets));
  if (options.batch_normalization_statistics == BatchNormalizationStatistics::population)
    check_population_statistics(network);
  check_lengths_of(network, options);
  check_mini_batches(data.training->size(), mini_batches_of(data, options));
  check_normalization(network, data.training->size(), options, data.loss);
  const bool validates = data.validation && data.validation->size() > 0;
  for (const auto& [field, wanted] :
       {std::pair{"validation_patience", options.validation.patience > 0},
        std::pair{"output_network = best",
                  options.validation.output_network == OutputNetwork::best},
        std::pair{"the schedule plateau", rates_depend_on_validations(options)}}) {
    if (!wanted || validates) continue;
    throw InvalidArgument("[training] " + std::string(field) + " needs validation data",
                          "set validation images or a validation_fraction");
  }
}

}  // namespace lockstep
