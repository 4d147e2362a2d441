#include "lockstep/train/input/targets.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/target_scaling.h"

namespace lockstep {
namespace {

// Labels where the loss takes numbers.
[[noreturn]] void refuse_labels(const Network& network, const Datastore& data) {
  const std::string column = data.spec().label_column;
  throw InvalidArgument("[training] the labels of " + data.describe() +
                            (column.empty() ? "" : " in the column `" + column + "`") +
                            " are read as the names of classes, not as numbers, and the network "
                            "has the loss " +
                            network.loss(),
                        "for numbers, name their columns in a job: target_columns; for classes, "
                        "end the network in softmax and set the loss to cross_entropy");
}

// The loss must give a number for each observation of the network's output.
void check_loss_of(const Network& network) {
  Graph graph;
  const NetworkValue output = network.outputs().at(0);
  LoweredValue prediction;
  const Shape each = batch_shape(1, output.shape);
  prediction.value = graph.add_input(output.sequence ? batch_shape(1, each) : each, DType::f32);
  if (output.sequence) prediction.lengths = graph.add_input({1}, DType::i32);
  add_loss(graph, network.loss(), prediction);
}

// `by_step`: each step of the sequences has a label.
void check_classifier(const Network& network, const Datastore& data, bool by_step) {
  const std::vector<std::string>& classes = data.classes();
  if (network.outputs().at(0).sequence != by_step) {
    throw InvalidArgument(
        by_step ? "[training] the data (" + data.describe() +
                      ") has a label for each step, but the network gives one result for a sequence"
                : "[training] the network gives a result for each step, but the data (" +
                      data.describe() + ") has one label for each observation",
        by_step ? "leave out the layer that takes the last step or their mean"
                : "take one result for a sequence: lstm(output = \"last\"), last_step, "
                  "global_average_pooling1d");
  }
  if (!takes_labels(network.loss())) {
    if (!has_image_inputs(data)) refuse_labels(network, data);
    throw InvalidArgument(
        "[training] images with labels need a loss of labels, such as cross_entropy, but the "
        "network has " +
            network.loss(),
        is_expression(network.loss())
            ? "in an expression, cross_entropy(output, target) and one_hot(target, classes) take "
              "labels"
            : "to train image to image, set images as targets");
  }
  if (network.output_shapes()[0] == Shape{static_cast<int64_t>(classes.size())}) {
    return check_loss_of(network);
  }
  const auto& layers = network.layers();
  std::string last = layers.back().name;
  for (const auto& node : layers) {
    if (node.layer->type() == "fully_connected") last = node.name;
  }
  throw InvalidArgument(
      "[training] the data has " +
          counted(static_cast<int64_t>(classes.size()), "class", "classes") +
          ", but the network's output is " + network.output_shapes()[0].to_string(),
      network.output_shapes()[0].rank() == 3
          ? pixel_labels_hint
          : "set the units of layer `" + last + "` to " + std::to_string(classes.size()));
}

}  // namespace

bool has_image_inputs(const Datastore& data) {
  const std::vector<ValueSpec> inputs = data.spec().inputs;
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const ValueSpec& input) { return input.kind == ValueKind::image; });
}

std::string examples_word(const Datastore& data) {
  if (has_image_inputs(data)) return "images";
  const ExampleSpec spec = data.spec();
  if (std::ranges::any_of(spec.inputs, &ValueSpec::sequence)) return "sequences";
  const bool table = !spec.label_column.empty() ||
                     std::any_of(spec.inputs.begin(), spec.inputs.end(),
                                 [](const ValueSpec& input) { return !input.columns.empty(); });
  return table ? "rows" : "observations";
}

void pixels_to_targets(const uint8_t* pixels, size_t count, float* targets) {
  for (size_t i = 0; i < count; ++i) targets[i] = target_of(pixels[i]);
}

void copy_target(const CachedTargets& targets, int64_t index, std::vector<uint8_t>& scratch,
                 float* to) {
  copy_target(*targets.value, targets.cache->get(index, scratch), to);
}

void copy_target(const CachedValue& value, const uint8_t* example, float* to) {
  const uint8_t* const from = example + value.offset;
  if (value.sequence) {
    ExampleCache::Steps steps;
    std::memcpy(&steps, from, sizeof steps);
    std::memcpy(to, steps.data, static_cast<size_t>(steps.count) * value.bytes);
    return;
  }
  if (value.kind == ValueKind::image) {
    return pixels_to_targets(from, static_cast<size_t>(value.elements()), to);
  }
  std::memcpy(to, from, value.bytes);
}

void copy_pixel_labels(const CachedValue& value, const uint8_t* example, int32_t* to) {
  const uint8_t* const from = example + value.offset;
  for (int64_t i = 0; i < value.elements(); ++i) to[i] = label_of_pixel(from[i]);
}

namespace {

std::string text_of(const std::vector<NetworkValue>& layers) {
  std::string text;
  for (const NetworkValue& layer : layers) {
    text += (text.empty() ? "`" : ", `") + layer.name + "` of " + layer.to_string();
  }
  return text;
}

std::string text_of(const ExampleSpec& spec) {
  std::string text;
  for (const ValueSpec& input : spec.inputs) {
    text += (text.empty() ? "" : ", ") + input.to_string();
    if (!input.input.empty()) text += " for `" + input.input + "`";
  }
  return text;
}

bool fits(const NetworkValue& layer, const ValueSpec& input) {
  if (input.kind == ValueKind::image) return layer.shape.rank() == 3 && !layer.sequence;
  return layer.shape == input.shape && layer.sequence == input.sequence && layer.type == input.type;
}

// The numbers of the example's inputs for the network's input layers, by name if they have names.
std::vector<size_t> match_names(const std::vector<NetworkValue>& layers, const ExampleSpec& spec,
                                const Datastore& data) {
  std::vector<std::string> known, given;
  for (const NetworkValue& layer : layers) known.push_back(layer.name);
  for (const ValueSpec& input : spec.inputs) given.push_back(input.input);
  std::vector<size_t> from;
  if (std::all_of(given.begin(), given.end(), [](const auto& name) { return name.empty(); })) {
    for (size_t i = 0; i < layers.size(); ++i) from.push_back(i);
    return from;
  }
  for (const std::string& name : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw InvalidArgument("[training] the data (" + data.describe() + ") has the input `" + name +
                              "`, but the network's inputs are " + text_of(layers),
                          suggest(name, known));
  }
  for (const std::string& name : known) {
    const auto found = std::find(given.begin(), given.end(), name);
    if (found == given.end()) {
      throw InvalidArgument("[training] the network's input `" + name +
                            "` has no input in the data (" + data.describe() +
                            "): " + text_of(spec));
    }
    from.push_back(static_cast<size_t>(found - given.begin()));
  }
  return from;
}

// ": the columns rooms, area and 3 more", or "".
std::string listed_columns(const ValueSpec& input) {
  return input.columns.empty() ? "" : ": the columns " + list_of_some(input.columns, 20);
}

// The error of examples with one input that do not fit a network.
[[noreturn]] void refuse_single(const std::vector<NetworkValue>& layers, const ValueSpec& input,
                                const Datastore& data) {
  std::string received;
  for (const NetworkValue& layer : layers) {
    received += (received.empty() ? "" : ", ") + layer.to_string();
  }
  const std::string combine =
      "examples with several inputs come from a list of folders and files in [data], or combine(): "
      "the network's inputs are " +
      text_of(layers);
  if (input.kind == ValueKind::array) {
    throw InvalidArgument(
        "[training] expected a network with one input of " +
            NetworkValue{{}, input.shape, input.sequence, input.type}.to_string() + " for " +
            data.describe() + ", but its inputs are " + received,
        layers.size() == 1
            ? "the input layer must have the shape of the data's arrays" + listed_columns(input)
            : combine);
  }
  throw InvalidArgument("[training] expected a network with one image input, but its inputs are " +
                            received + "; the data is " + data.describe(),
                        layers.size() == 1 ? "vectors, sequences and volumes come from "
                                             "array_datastore() or csv_datastore()"
                                           : combine);
}

}  // namespace

std::vector<size_t> input_indices(const Network& network, const Datastore& data) {
  return match_names(network.inputs(), data.spec(), data);
}

std::vector<size_t> check_inputs(const Network& network, const Datastore& data) {
  const ExampleSpec spec = data.spec();
  const std::vector<NetworkValue> layers = network.inputs();
  if (spec.inputs.size() == 1 && (layers.size() != 1 || !fits(layers[0], spec.inputs[0]))) {
    refuse_single(layers, spec.inputs[0], data);
  }
  if (layers.size() != spec.inputs.size()) {
    throw InvalidArgument("[training] the network has " + counted(layers.size(), "input") + " (" +
                          text_of(layers) + "), but the examples of " + data.describe() + " have " +
                          std::to_string(spec.inputs.size()) + ": " + text_of(spec));
  }
  const std::vector<size_t> from = match_names(layers, spec, data);
  for (size_t k = 0; k < layers.size(); ++k) {
    const ValueSpec& input = spec.inputs[from[k]];
    if (fits(layers[k], input)) continue;
    throw InvalidArgument("[training] the network's input `" + layers[k].name + "` is of " +
                              layers[k].to_string() + ", but input " + std::to_string(from[k] + 1) +
                              " of the data (" + data.describe() + ") has " + input.to_string(),
                          "input layers take the inputs of the data in order, or by the names that "
                          "combine() gives them");
  }
  return from;
}

std::optional<ValueSpec> target_spec(const Datastore& data, const DatastorePtr& targets) {
  const std::optional<ValueSpec> own = data.spec().target;
  if (!targets) return own;
  if (own) {
    throw InvalidArgument("[training] the examples of " + data.describe() +
                          " have targets, but others (" + targets->describe() +
                          ") are given as well");
  }
  const ExampleSpec spec = targets->spec();
  if (spec.inputs.size() != 1 || spec.target) {
    throw InvalidArgument("[training] a target is one image or array, but the examples of " +
                          targets->describe() + " have several inputs or targets");
  }
  if (spec.inputs[0].type == DType::i32) {
    const bool pixels = spec.inputs[0].pixel_labels();
    throw InvalidArgument("[training] labels by " + std::string(pixels ? "pixel" : "step") + " (" +
                              targets->describe() +
                              ") must be parts of the examples, not separate targets",
                          "put them into the examples: " +
                              std::string(pixels ? "with_targets(images, labels)"
                                                 : "with_targets(sequences, step_labels(...))") +
                              " as the training data, and no targets next to it");
  }
  return spec.inputs[0];
}

bool learns_labels(const Datastore& data, const DatastorePtr& targets) {
  const std::optional<ValueSpec> target = target_spec(data, targets);
  return !target || target->type == DType::i32;
}

const std::vector<std::string>& learned_classes(const Datastore& data,
                                                const DatastorePtr& targets) {
  return (targets ? *targets : data).classes();
}

namespace {

// Images can be mixed if each has a label, by which the network's loss is mixed alike.
void check_mixing(const TrainingData& data) {
  if (!data.augmentation.mixes()) return;
  const std::string what =
      std::string("[augmentation] ") + (data.augmentation.mixup > 0 ? "mixup" : "cutmix");
  if (data.loss) {
    throw InvalidArgument(
        what + " needs the loss of the network, but the training has a loss function",
        "write it as an expression of output and target: the network's loss");
  }
  if (data.training->spec().inputs.size() > 1) {
    throw InvalidArgument(what +
                          " is for networks with one input, an image, but the examples have " +
                          std::to_string(data.training->spec().inputs.size()));
  }
  if (target_spec(*data.training, data.training_targets)) {
    throw InvalidArgument(what + " is for images with class labels, but the network learns targets",
                          "leave it out");
  }
}

}  // namespace

void check_changes(const TrainingData& data) {
  check_augmentation(*data.training, data.augmentation);
  check_mixing(data);
  if (const OwnAugmentation& own = data.own_augmentation) {
    if (own.name.empty()) {
      throw InvalidArgument("[training] the augmentation of the user has no name",
                            "checkpoints and receipts contain it: set OwnAugmentation::name");
    }
    check_images(*data.training, "augmentation", "the function `" + own.name + "`");
  }
  if (data.noise.any()) check_images(*data.training, "noise");
  if (data.random_crop) check_images(*data.training, "random crop");
  if (!data.resized_crop) return;
  check_images(*data.training, "random resized crop");
  data.resized_crop->check();
  if (!data.random_crop) return;
  throw InvalidArgument("[training] random_crop and resized_crop cannot both be set",
                        "a random resized crop is one at a random position, too");
}

namespace {

// The column of texts of which a name is `column=text`, or the name.
std::string column_of(const std::string& name) { return name.substr(0, name.find('=')); }

// "k: kind=big, kind=small; p: price"
std::string text_of_parts(const std::vector<NetworkPart>& parts,
                          const std::vector<std::string>& columns) {
  std::string text;
  for (const NetworkPart& part : parts) {
    const auto first = columns.begin() + part.first;
    text += (text.empty() ? "" : "; ") + part.name + ": " +
            list_of_some({first, first + part.count}, 6);
  }
  return text;
}

// Several outputs take the columns of the targets in order, so a wrong order shows in what they
// get.
void check_parts(const Network& network, const ValueSpec& target) {
  const std::vector<NetworkPart> parts = network_parts(network);
  for (const NetworkPart& part : parts) {
    if (!takes_labels(part.loss) || part.count > 1) continue;
    throw InvalidArgument(
        "[training] the output `" + part.name + "` has the loss " + part.loss +
            ", but one number, whose probability would always be 1",
        "name the column of its classes in categories and give the layer a unit for each class, or "
        "end it in sigmoid and set its loss to binary_cross_entropy(output, target)");
  }
  const std::vector<std::string>& columns = target.columns;
  if (parts.empty() || columns.empty()) return;
  const char* const hint =
      "outputs take the columns of target_columns in order: give both in the same order, and name "
      "columns of classes in categories";
  for (const NetworkPart& part : parts) {
    const auto first = static_cast<size_t>(part.first),
               end = first + static_cast<size_t>(part.count);
    const std::string& name = columns.at(first);
    const std::string column = column_of(name);
    // A column of classes that ends in another output, or that shares one with other columns.
    const bool labels =
        takes_labels(part.loss) || std::ranges::any_of(parts, [&](const NetworkPart& other) {
          return other.first == part.first + part.count && takes_labels(other.loss);
        });
    const bool cut = labels && end < columns.size() &&
                     columns[end].find('=') != std::string::npos &&
                     column_of(columns[end]) == column_of(columns[end - 1]);
    bool mixed = false;
    for (size_t i = first; i < end && takes_labels(part.loss); ++i) {
      mixed |= column_of(columns[i]) != column &&
               (columns[i].find('=') != std::string::npos || name.find('=') != std::string::npos);
    }
    if (!cut && !mixed) continue;
    throw InvalidArgument(
        "[training] the outputs do not fit the target columns: " + text_of_parts(parts, columns) +
            (cut ? ", which divides the classes of `" + column_of(columns[end]) + "`"
                 : ", where " + part.name + " has the loss " + part.loss),
        hint);
  }
}

}  // namespace

void check_combined(const Network& network, const ExampleCache& data) {
  const std::vector<NetworkValue> inputs = network.inputs();
  if (std::ranges::count(inputs, true, &NetworkValue::sequence) < 2) return;
  const std::vector<int64_t> steps(inputs.size(), 1);
  for (const CombinedSequences& pair : network.lower(1, {.steps = steps}).combined) {
    for (int64_t i = 0; i < data.size(); ++i) {
      const int64_t first = data.steps(i, pair.inputs[0]), second = data.steps(i, pair.inputs[1]);
      if (first != second) pair.refuse(first, second, data.store()->name(i));
    }
  }
}

void check_fits(const Network& network, const Datastore& data, const DatastorePtr& targets) {
  const auto shapes = network.output_shapes();
  if (shapes.size() != 1) {
    throw InvalidArgument("[training] expected a network with one output, but it has " +
                          std::to_string(shapes.size()));
  }
  const std::optional<ValueSpec> target = target_spec(data, targets);
  check_scaling(network, learns_labels(data, targets));
  if (!target) return check_classifier(network, data, false);
  if (target->pixel_labels()) {
    check_pixel_classifier(network, data);
    return check_loss_of(network);
  }
  if (learns_labels(data, targets)) {
    return check_classifier(network, targets ? *targets : data, true);
  }
  if (takes_labels(network.loss())) {
    throw InvalidArgument(
        "[training] images and arrays as targets need a loss of numbers, such as "
        "mean_squared_error, but the network has " +
            network.loss(),
        is_expression(network.loss()) ? "an expression that takes `target` for labels needs labels"
                                      : "");
  }
  check_loss_of(network);
  const NetworkValue output = network.outputs().at(0);
  if (target->kind == ValueKind::array) {
    if (output.shape == target->shape && output.sequence == target->sequence) {
      return check_parts(network, *target);
    }
    const NetworkValue given{{}, target->shape, target->sequence};
    throw InvalidArgument("[training] the targets (" + (targets ? *targets : data).describe() +
                          ") are of " + given.to_string() + ", but the network's output is of " +
                          output.to_string());
  }
  if (shapes[0].rank() != 3 || (shapes[0][0] != 1 && shapes[0][0] != 3)) {
    throw InvalidArgument(
        "[training] the network's output of " + shapes[0].to_string() + " is not an image",
        "image targets need an output of 1 or 3 channels x rows x columns");
  }
}

std::vector<NetworkPart> network_parts(const Network& network) {
  const auto is_outputs = [](const LayerNode& node) {
    return node.layer->type() == OutputsOptions::kType;
  };
  if (std::ranges::none_of(network.layers(), is_outputs)) return {};
  const LoweredNetwork lowered = network.lower(1, {});
  const Shape whole = lowered.graph.shape(lowered.outputs.at(0));
  const int64_t steps = lowered.output_lengths.at(0) < 0 ? 1 : whole[1];
  std::vector<NetworkPart> parts;
  int64_t first = 0;
  for (const LoweredOutput& part : lowered.parts) {
    const int64_t count = lowered.graph.shape(part.value).elements() / steps;
    parts.push_back({part.name, part.loss, first, count});
    first += count;
  }
  return parts;
}

std::vector<MetricPart> metric_parts(const Network& network) {
  std::vector<MetricPart> parts;
  for (const NetworkPart& part : network_parts(network)) {
    parts.push_back({part.name, part.first, part.count, takes_labels(part.loss)});
  }
  return parts;
}

MetricProblem metric_problem(const Network& network, const Datastore& data,
                             const DatastorePtr& targets) {
  if (!learns_labels(data, targets)) {
    return {{}, network.output_shapes().at(0), metric_parts(network)};
  }
  const Shape output = network.output_shapes().at(0);
  // A metric sees each pixel as an observation.
  const bool pixels = has_pixel_labels(data);
  return {learned_classes(data, targets), pixels ? Shape{output[0]} : output};
}

std::shared_ptr<const ExampleCache> cache_for(const Network& network, const DatastorePtr& data,
                                              size_t budget_bytes, CachedImages images,
                                              bool targets) {
  CachedShapes shapes{.inputs = network.input_shapes(),
                      .from = check_inputs(network, *data),
                      .names = network.input_names()};
  if (const std::optional<ValueSpec> target = data->spec().target; target && targets) {
    const Shape output = network.output_shapes().at(0);
    if (target->pixel_labels() && output.rank() == 3) {
      shapes.target = Shape{1, output[1], output[2]};
    } else {
      shapes.target = target->kind == ValueKind::array ? target->shape : output;
    }
  }
  return std::make_shared<ExampleCache>(data, shapes, budget_bytes, images);
}

std::shared_ptr<const ExampleCache> target_cache_for(
    const Network& network, const DatastorePtr& targets,
    const std::shared_ptr<const ExampleCache>& inputs, size_t budget_bytes) {
  if (!targets) return nullptr;
  if (targets->size() != inputs->size()) {
    throw InvalidArgument("[training] received " + counted(targets->size(), "target") + " (" +
                          targets->describe() + ") for " + counted(inputs->size(), "observation") +
                          " (" + inputs->store()->describe() + ")");
  }
  const std::optional<ValueSpec> spec = target_spec(*inputs->store(), targets);
  const Shape shape = network.output_shapes().at(0);
  if (spec->kind == ValueKind::array) {
    if (targets == inputs->store()) return inputs;
    return std::make_shared<ExampleCache>(targets, shape, budget_bytes);
  }
  if (targets == inputs->store() && shape == inputs->inputs()[0].shape) return inputs;
  return std::make_shared<ExampleCache>(targets, CachedShapes{{shape}}, budget_bytes,
                                        inputs->images());
}

}  // namespace lockstep
