// Inputs and targets of a network: inputs are images or arrays; targets are labels, images or
// arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/data/batches/example_cache.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

// Converts pixels from 0 to 255 to targets from 0 to 1.
void pixels_to_targets(const uint8_t* pixels, size_t count, float* targets);

// Copies a value of an example that a cache returned, as a target.
void copy_target(const CachedValue& value, const uint8_t* example, float* to);
// Copies the target of one example from a cache. `scratch` is for ExampleCache::get().
void copy_target(const CachedTargets& targets, int64_t index, std::vector<uint8_t>& scratch,
                 float* to);

// Copies the labels of a label image: kIgnoredLabel for pixels without a class.
void copy_pixel_labels(const CachedValue& value, const uint8_t* example, int32_t* to);

// For each input layer of the network, the number of the example's input that it gets: the one with
// its name, or the one at its position if inputs have no names. Throws InvalidArgument, naming the
// input layer, unless the inputs fit: three dimensions for images, or the shape of the arrays.
std::vector<size_t> check_inputs(const Network& network, const Datastore& data);

// The same without a check of their shapes. The examples have as many inputs as the network.
std::vector<size_t> input_indices(const Network& network, const Datastore& data);

// Targets with their columns in the order of `columns`. `matched` is match_columns() of `data`: the
// result if the inputs are the targets. Null for null.
DatastorePtr match_target_columns(const TableColumns& columns, const DatastorePtr& targets,
                                  const DatastorePtr& data, const DatastorePtr& matched);
struct MatchedData {
  TrainingData data;
  // The order of its columns: that of the network, or of the training data if the network has none.
  // For Network::set_columns().
  TableColumns columns;
};
// match_columns() of all parts.
MatchedData match_all_columns(const Network& network, TrainingData data);
// The notices of all datastores, each once.
std::vector<std::string> notices_of(const TrainingData& data);

// The targets that the network learns: the first input of `targets`, or the target of the examples
// if `targets` is null; nothing: labels. Throws InvalidArgument if both exist, and for targets with
// several inputs.
std::optional<ValueSpec> target_spec(const Datastore& data, const DatastorePtr& targets);

// Whether the network learns class labels: of observations, or of the steps of sequences.
bool learns_labels(const Datastore& data, const DatastorePtr& targets);

// The classes of these labels.
const std::vector<std::string>& learned_classes(const Datastore& data, const DatastorePtr& targets);

// Whether an input is an image.
bool has_image_inputs(const Datastore& data);
// What messages call the examples: "images", "sequences", "rows" of a table, or "observations".
std::string examples_word(const Datastore& data);

// Throws Unsupported if augmentation, noise or random crops are set and no input is an image, and
// InvalidArgument for images that are to be mixed, but have no class labels.
void check_changes(const TrainingData& data);

// Throws InvalidArgument unless the network can learn the targets (see target_spec()) or else the
// labels: it needs one output of the right size and a suitable loss.
void check_fits(const Network& network, const Datastore& data, const DatastorePtr& targets);

// Throws InvalidArgument, naming the observation, unless sequences that a layer of the network
// combines step by step have equal lengths.
void check_combined(const Network& network, const ExampleCache& data);

// One of several results of a network: elements of its output.
struct NetworkPart {
  std::string name, loss;  // of its layer
  int64_t first = 0, count = 0;
};
// The results of a network that ends in outputs(), or in denormalization() after it; else empty.
std::vector<NetworkPart> network_parts(const Network& network);
std::vector<MetricPart> metric_parts(const Network& network);

// The description of the data that metrics need.
MetricProblem metric_problem(const Network& network, const Datastore& data,
                             const DatastorePtr& targets);

// A cache of examples whose images have the sizes of the network's inputs, and the size of its
// output if they are targets. `images` is the kind of cached images; without `targets`, those of
// the examples are left out. Throws like check_inputs().
std::shared_ptr<const ExampleCache> cache_for(const Network& network, const DatastorePtr& data,
                                              size_t budget_bytes,
                                              CachedImages images = CachedImages::exact,
                                              bool targets = true);
// The same for targets, in the size of the network's output; exact or windowed like the inputs.
// Null if `targets` is null. Returns the cache of the inputs if the targets are the same images in
// the same size. Throws InvalidArgument if there are not as many targets as inputs.
std::shared_ptr<const ExampleCache> target_cache_for(
    const Network& network, const DatastorePtr& targets,
    const std::shared_ptr<const ExampleCache>& inputs, size_t budget_bytes);

}  // namespace lockstep
