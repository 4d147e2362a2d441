#include "lockstep/train/targets.h"

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void check_classifier(const Network& network, const std::vector<std::string>& classes) {
  if (network.loss() != "cross_entropy") {
    throw InvalidArgument(
        "[training] images with labels train the loss cross_entropy, the network has " +
            network.loss(),
        "give images as targets to train it image to image");
  }
  if (network.output_shapes()[0] == Shape{static_cast<int64_t>(classes.size())}) return;
  const auto& layers = network.layers();
  std::string last = layers.back().name;
  for (const auto& node : layers) {
    if (node.layer->type() == "fully_connected") last = node.name;
  }
  throw InvalidArgument(
      "[training] the data has " + std::to_string(classes.size()) +
          " classes, the network's output is " + network.output_shapes()[0].to_string(),
      "let layer `" + last + "` have " + std::to_string(classes.size()) + " units");
}

}  // namespace

void pixels_to_targets(const uint8_t* pixels, size_t count, float* targets) {
  for (size_t i = 0; i < count; ++i) targets[i] = static_cast<float>(pixels[i]) / 255.0f;
}

void check_fits(const Network& network, const std::vector<std::string>& classes,
                const DatastorePtr& targets) {
  const auto shapes = network.output_shapes();
  if (shapes.size() != 1) {
    throw InvalidArgument("[training] a network with one output wanted, this has " +
                          std::to_string(shapes.size()));
  }
  if (!targets) return check_classifier(network, classes);
  if (network.loss() != "mean_squared_error") {
    throw InvalidArgument(
        "[training] images as targets train the loss mean_squared_error, the network has " +
        network.loss());
  }
  if (shapes[0].rank() != 3 || (shapes[0][0] != 1 && shapes[0][0] != 3)) {
    throw InvalidArgument(
        "[training] the network's output of " + shapes[0].to_string() + " is no image",
        "1 or 3 channels x rows x columns are wanted where targets are images");
  }
}

MetricProblem metric_problem(const Network& network, const ImageDatastore& data,
                             const DatastorePtr& targets) {
  return {targets ? std::vector<std::string>{} : data.classes(), network.output_shapes().at(0)};
}

std::shared_ptr<const ImageCache> cache_for(const Network& network, const DatastorePtr& data,
                                            size_t budget_bytes, CachedImages images) {
  const auto shapes = network.input_shapes();
  if (shapes.size() != 1 || shapes[0].rank() != 3) {
    std::string received;
    for (const Shape& shape : shapes) {
      received += (received.empty() ? "" : ", ") + shape.to_string();
    }
    throw InvalidArgument(
        "[training] a network with one image input wanted, this one's inputs are " + received,
        "other inputs have no datastores yet: train with a loop of your own over "
        "Network::forward");
  }
  return std::make_shared<ImageCache>(data, shapes[0][1], shapes[0][2], shapes[0][0], budget_bytes,
                                      images);
}

std::shared_ptr<const ImageCache> target_cache_for(const Network& network,
                                                   const DatastorePtr& targets,
                                                   const std::shared_ptr<const ImageCache>& inputs,
                                                   size_t budget_bytes) {
  if (!targets) return nullptr;
  if (targets->size() != inputs->size()) {
    throw InvalidArgument("[training] there are " + std::to_string(targets->size()) + " targets (" +
                          targets->describe() + ") for " + std::to_string(inputs->size()) +
                          " images (" + inputs->store()->describe() + ")");
  }
  const Shape shape = network.output_shapes().at(0);
  const Shape size{inputs->channels(), inputs->height(), inputs->width()};
  if (targets == inputs->store() && shape == size) return inputs;
  return std::make_shared<ImageCache>(targets, shape[1], shape[2], shape[0], budget_bytes,
                                      inputs->images());
}

}  // namespace lockstep
