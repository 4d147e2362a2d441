#include "lockstep/train/input/targets.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void check_classifier(const Network& network, const std::vector<std::string>& classes) {
  if (network.loss() != "cross_entropy") {
    throw InvalidArgument(
        "[training] images with labels need the loss cross_entropy, but the network has " +
            network.loss(),
        "to train image to image, set images as targets");
  }
  if (network.output_shapes()[0] == Shape{static_cast<int64_t>(classes.size())}) return;
  const auto& layers = network.layers();
  std::string last = layers.back().name;
  for (const auto& node : layers) {
    if (node.layer->type() == "fully_connected") last = node.name;
  }
  throw InvalidArgument(
      "[training] the data has " + std::to_string(classes.size()) +
          " classes, but the network's output is " + network.output_shapes()[0].to_string(),
      "set the units of layer `" + last + "` to " + std::to_string(classes.size()));
}

}  // namespace

Shape batch_shape(int64_t n, const Shape& observation) {
  std::vector<int64_t> dims = observation.dims();
  dims.insert(dims.begin(), n);
  return Shape(std::move(dims));
}

void pixels_to_targets(const uint8_t* pixels, size_t count, float* targets) {
  for (size_t i = 0; i < count; ++i) targets[i] = static_cast<float>(pixels[i]) / 255.0f;
}

void copy_targets(const MiniBatch& batch, size_t first, size_t count, float* to) {
  if (batch.target_values.empty())
    return pixels_to_targets(batch.targets.data() + first, count, to);
  std::copy_n(batch.target_values.data() + first, count, to);
}

void copy_target(const ImageCache& targets, int64_t index, std::vector<uint8_t>& scratch,
                 float* to) {
  const uint8_t* const from = targets.get(index, scratch);
  const auto count = static_cast<size_t>(targets.elements());
  if (targets.dtype() == DType::u8) return pixels_to_targets(from, count, to);
  std::memcpy(to, from, count * sizeof(float));
}

void check_inputs(const Network& network, const ImageDatastore& data) {
  const std::optional<Shape> arrays = data.array_shape();
  const auto shapes = network.input_shapes();
  if (shapes.size() == 1 && (arrays ? shapes[0] == *arrays : shapes[0].rank() == 3)) return;
  std::string received;
  for (const Shape& shape : shapes) received += (received.empty() ? "" : ", ") + shape.to_string();
  if (arrays) {
    throw InvalidArgument("[training] expected a network with one input of " + arrays->to_string() +
                              " for " + data.describe() + ", but its inputs are " + received,
                          "the input layer must have the shape of the data's arrays");
  }
  throw InvalidArgument(
      "[training] expected a network with one image input, but its inputs are " + received +
          "; the data is " + data.describe(),
      shapes.size() == 1 ? "vectors, sequences and images with depth come from array_datastore() "
                           "or csv_datastore()"
                         : "train networks with several inputs by a custom loop over "
                           "Network::forward");
}

void check_changes(const TrainingData& data) {
  if (data.augmentation.any()) check_images(*data.training, "augmentation");
  if (data.noise.any()) check_images(*data.training, "noise");
  if (data.random_crop) check_images(*data.training, "random crop");
}

void check_fits(const Network& network, const std::vector<std::string>& classes,
                const DatastorePtr& targets) {
  const auto shapes = network.output_shapes();
  if (shapes.size() != 1) {
    throw InvalidArgument("[training] expected a network with one output, but it has " +
                          std::to_string(shapes.size()));
  }
  if (!targets) return check_classifier(network, classes);
  if (network.loss() != "mean_squared_error") {
    throw InvalidArgument(
        "[training] images and arrays as targets need the loss mean_squared_error, but the network "
        "has " +
        network.loss());
  }
  if (const std::optional<Shape> arrays = targets->array_shape()) {
    if (shapes[0] == *arrays) return;
    throw InvalidArgument("[training] the targets (" + targets->describe() + ") are of " +
                          arrays->to_string() + ", but the network's output is of " +
                          shapes[0].to_string());
  }
  if (shapes[0].rank() != 3 || (shapes[0][0] != 1 && shapes[0][0] != 3)) {
    throw InvalidArgument(
        "[training] the network's output of " + shapes[0].to_string() + " is not an image",
        "image targets need an output of 1 or 3 channels x rows x columns");
  }
}

MetricProblem metric_problem(const Network& network, const ImageDatastore& data,
                             const DatastorePtr& targets) {
  return {targets ? std::vector<std::string>{} : data.classes(), network.output_shapes().at(0)};
}

std::shared_ptr<const ImageCache> cache_for(const Network& network, const DatastorePtr& data,
                                            size_t budget_bytes, CachedImages images) {
  check_inputs(network, *data);
  const Shape shape = network.input_shapes()[0];
  if (data->array_shape()) return std::make_shared<ImageCache>(data, shape, budget_bytes);
  return std::make_shared<ImageCache>(data, shape[1], shape[2], shape[0], budget_bytes, images);
}

std::shared_ptr<const ImageCache> target_cache_for(const Network& network,
                                                   const DatastorePtr& targets,
                                                   const std::shared_ptr<const ImageCache>& inputs,
                                                   size_t budget_bytes) {
  if (!targets) return nullptr;
  if (targets->size() != inputs->size()) {
    throw InvalidArgument("[training] there are " + std::to_string(targets->size()) + " targets (" +
                          targets->describe() + ") for " + std::to_string(inputs->size()) +
                          " observations (" + inputs->store()->describe() + ")");
  }
  const Shape shape = network.output_shapes().at(0);
  if (targets->array_shape()) {
    if (targets == inputs->store()) return inputs;
    return std::make_shared<ImageCache>(targets, shape, budget_bytes);
  }
  const Shape size{inputs->channels(), inputs->height(), inputs->width()};
  if (targets == inputs->store() && shape == size) return inputs;
  return std::make_shared<ImageCache>(targets, shape[1], shape[2], shape[0], budget_bytes,
                                      inputs->images());
}

}  // namespace lockstep
