#include "lockstep/train/loop/kept_features.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/evaluation/evaluated_batches.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/step/shards.h"

namespace lockstep {
namespace {

// "stem/conv" of "stem/conv.weights"
std::string layer_of(const std::string& value) { return value.substr(0, value.rfind('.')); }

// Why the results of layers change during a training, by the name of the layer that owns the
// values or draws the numbers.
std::map<std::string, std::string> changing_layers(const Network& network,
                                                   const std::vector<std::string>& frozen) {
  std::map<std::string, std::string> why;
  for (const Parameter& p : network.parameters()) {
    if (!is_frozen(p.name, frozen)) why[layer_of(p.name)] = "is not frozen";
  }
  const LoweredNetwork lowered = network.lower(1, {.training = true});
  for (const MovingStatistics& s : lowered.statistics) {
    for (const int state : {s.mean_state, s.variance_state}) {
      why[layer_of(network.state()[static_cast<size_t>(state)].name)] =
          "has statistics that follow the mini-batches (keep_statistics, or statistics = "
          "\"moving\", keeps them)";
    }
  }
  for (const Graph::Node& node : lowered.graph.nodes()) {
    if (node.op->draws_random_numbers()) why[node.name] = "draws random numbers";
  }
  return why;
}

// The part of the network that does not change.
struct Unchanged {
  std::set<std::string> layers;
  int64_t with_parameters = 0;   // of them
  std::string first_after, why;  // the first layer that is not part of it, and the reason
};

Unchanged unchanged_part(const Network& network, const std::vector<std::string>& frozen) {
  const std::map<std::string, std::string> changing = changing_layers(network, frozen);
  std::set<std::string> read, owners;
  for (const LayerNode& node : network.layers())
    read.insert(node.inputs.begin(), node.inputs.end());
  for (const Parameter& p : network.parameters()) owners.insert(layer_of(p.name));
  Unchanged part;
  const auto reason = [&](const LayerNode& node) -> std::string {
    for (const std::string& name : {node.name, node.shares}) {
      if (const auto found = changing.find(name); found != changing.end()) return found->second;
    }
    return read.contains(node.name) ? "" : "gives the network's output";
  };
  // Layers may be listed before their inputs.
  for (bool more = true; more;) {
    more = false;
    for (const LayerNode& node : network.layers()) {
      if (part.layers.contains(node.name) || !reason(node).empty()) continue;
      const auto known = [&](const std::string& name) { return part.layers.contains(name); };
      if (!std::ranges::all_of(node.inputs, known)) continue;
      part.layers.insert(node.name);
      part.with_parameters += owners.contains(node.shares.empty() ? node.name : node.shares);
      more = true;
    }
  }
  for (const LayerNode& node : network.layers()) {
    if (part.layers.contains(node.name) || reason(node).empty()) continue;
    part.first_after = node.name;
    part.why = reason(node);
    break;
  }
  return part;
}

// The number of rows of all shards; 0: they differ.
int64_t rows_of_shards(int64_t observations, const TrainingOptions& options) {
  const int64_t batch = std::min(options.mini_batch_size, observations);
  std::vector<int64_t> sizes{batch};
  const bool keeps = options.data.last_mini_batch == LastMiniBatch::keep;
  if (keeps && observations % batch > 0) sizes.push_back(observations % batch);
  std::set<int64_t> rows;
  for (const int64_t size : sizes) {
    for (const IndexRange& s : cut_into_shards(size, options.shards.size)) rows.insert(s.count);
  }
  return rows.size() == 1 ? *rows.begin() : 0;
}

// What prevents keeping results in this training; "": nothing.
std::string prevented(const Network& network, const TrainingData& data,
                      const TrainingOptions& options) {
  const auto sequence = [](const NetworkValue& value) { return value.sequence; };
  const std::optional<ValueSpec> target = data.training->spec().target;
  if (data.augmentation.any()) return "the training data is augmented";
  if (data.random_crop || data.resized_crop)
    return "regions of the training images are drawn at random";
  if (data.noise.any()) return "noise is added to the images";
  if (options.workers.count > 0) return "worker processes compute";
  if (!network.device().is_cpu()) return "a GPU computes";
  if (options.precision.dtype() != DType::f32) return "this needs precision = fp32";
  if (data.loss) return "the loss is a function of the user";
  if (std::ranges::any_of(network.inputs(), sequence) || !network.row_state_shapes().empty()) {
    return "an input is a sequence";
  }
  if (target && (target->kind != ValueKind::array || target->type != DType::f32)) {
    return "the targets of the examples are not numbers";
  }
  const auto learns = [&](const Parameter& p) { return !is_frozen(p.name, options.freeze); };
  if (std::ranges::none_of(network.parameters(), learns)) return "no layer learns";
  if (rows_of_shards(data.training->size(), options) == 0) {
    return "the shards have different sizes (a mini_batch_size that is a multiple of shard_size, "
           "and last_mini_batch = \"drop\", make them equal)";
  }
  return {};
}

// The results of frozen layers for the observations of another datastore.
class Features final : public DatastoreWrapper {
 public:
  Features(const ExampleCache& from, const KeptLayers& kept)
      : DatastoreWrapper(from.store()),
        shapes_(kept.shapes),
        target_(from.target() ? std::optional(from.target()->shape) : std::nullopt) {
    const auto count = static_cast<size_t>(from.size());
    for (const Shape& shape : shapes_) {
      values_.emplace_back(count * static_cast<size_t>(shape.elements()));
    }
    if (target_) targets_.resize(count * static_cast<size_t>(target_->elements()));
  }

  // The elements of an observation, to be filled before anything is read.
  float* values(size_t k, int64_t i) { return values_[k].data() + i * shapes_[k].elements(); }
  float* target(int64_t i) { return targets_.data() + i * target_->elements(); }

  ExampleSpec spec() const override {
    ExampleSpec spec;
    spec.inputs.clear();
    for (const Shape& shape : shapes_) spec.inputs.push_back({ValueKind::array, shape});
    if (target_) spec.target = {ValueKind::array, *target_};
    return spec;
  }
  Example read(int64_t i) const override {
    Example example;
    example.target = ClassLabel{label(i)};
    for (size_t k = 0; k < shapes_.size(); ++k) {
      example.inputs.emplace_back(copy(shapes_[k], values_[k], i));
    }
    if (target_) example.target = copy(*target_, targets_, i);
    return example;  // without a digest of its contents: the examples were compared when read
  }
  Digest content_digest(int64_t) const override { return {}; }
  std::vector<std::string> notices() const override { return {}; }
  void expect(const std::vector<int64_t>&) const override {}
  std::string describe() const override {
    return "results of frozen layers for " + DatastoreWrapper::describe();
  }

 private:
  static Array copy(const Shape& shape, const std::vector<float>& all, int64_t i) {
    const auto first = all.begin() + i * shape.elements();
    return {shape, {first, first + shape.elements()}};
  }

  const std::vector<Shape> shapes_;
  const std::optional<Shape> target_;
  std::vector<std::vector<float>> values_;  // by layer
  std::vector<float> targets_;
};

// Runs the frozen layers in batches of `rows`, the last one padded: the bits of a result may depend
// on the number of rows, but on nothing else.
class FeatureRuns {
 public:
  FeatureRuns(Network& network, const ExampleCache& from, const KeptLayers& kept, bool training,
              int64_t rows, int threads)
      : from_(from), layers_(kept.given.size()), rows_(rows) {
    LoweredNetwork lowered = network.lower(
        rows, {.training = training, .inputs = from.input_types(), .outputs = kept.given});
    // Of the same ops as in a training, where gradients are computed: a plan without gradients has
    // fused ones, which round in another way.
    PlanOptions options{.gradients = training};
    for (const int value : lowered.outputs) {
      const int number = lowered.graph.mark_output(value);
      if (training) options.differentiated.push_back(number);
    }
    const auto plan = std::make_shared<const Plan>(lowered.graph, network.parameter_shapes(),
                                                   options, network.device());
    const int64_t most = std::min<int64_t>(threads, batches());
    for (int64_t t = 0; t < most; ++t) {
      runs_.emplace_back(plan, network.packed(), network.state_pointers());
    }
    network.packed().pack_all();
  }

  int64_t batches() const { return (from_.size() + rows_ - 1) / rows_; }
  int64_t threads() const { return std::ssize(runs_); }

  void compute(int64_t batch, int thread, Features& to) {
    PlanRun& run = runs_[static_cast<size_t>(thread)];
    const int64_t first = batch * rows_, count = std::min(rows_, from_.size() - first);
    std::vector<int64_t> indices;
    for (int64_t i = first; i < first + count; ++i) indices.push_back(i);
    from_.expect(indices);
    std::vector<uint8_t> scratch;
    for (int64_t i = 0; i < rows_; ++i) {
      const uint8_t* const example = i < count ? from_.get(first + i, scratch) : nullptr;
      for (size_t k = 0; k < from_.inputs().size(); ++k) {
        const CachedValue& input = from_.inputs()[k];
        auto* const row = static_cast<uint8_t*>(run.input(static_cast<int>(k))) +
                          static_cast<size_t>(i) * input.bytes;
        if (example == nullptr) {
          std::memset(row, 0, input.bytes);
        } else {
          std::memcpy(row, example + input.offset, input.bytes);
        }
      }
      if (example == nullptr || from_.target() == nullptr) continue;
      std::memcpy(to.target(first + i), example + from_.target()->offset, from_.target()->bytes);
    }
    run.forward({});
    for (size_t k = 0; k < layers_; ++k) {
      const float* const results = run.output(static_cast<int>(k));
      const int64_t each = to.values(k, 1) - to.values(k, 0);
      std::copy_n(results, count * each, to.values(k, first));
    }
  }

 private:
  const ExampleCache& from_;
  const size_t layers_;
  const int64_t rows_;
  std::vector<PlanRun> runs_;  // by thread
};

// A cache that reads the results from their memory each time.
std::shared_ptr<const ExampleCache> features_of(const ExampleCache& from, const KeptLayers& kept,
                                                FeatureRuns runs, ThreadPool& pool,
                                                const std::function<bool()>& interrupted) {
  const auto features = std::make_shared<Features>(from, kept);
  std::atomic<int64_t> next{0};
  std::atomic<bool> stop{false};
  pool.run([&](int thread) {
    if (thread >= runs.threads()) return;
    const ArithmeticMode mode;
    try {
      for (int64_t batch = next++; batch < runs.batches() && !stop; batch = next++) {
        if (thread == 0 && interrupted()) stop = true;
        runs.compute(batch, thread, *features);
        mode.check();
      }
    } catch (...) {
      stop = true;
      throw;
    }
  });
  if (stop) {
    throw Cancelled(
        "[training] the training was stopped while results of frozen layers were "
        "computed",
        "no iteration had begun, so nothing is lost");
  }
  CachedShapes shapes{.inputs = kept.shapes, .names = kept.given};
  if (from.target()) shapes.target = from.target()->shape;
  return std::make_shared<ExampleCache>(features, shapes, 0);
}

}  // namespace

int64_t KeptLayers::bytes() const {
  int64_t elements = 0;
  for (const Shape& shape : shapes) elements += shape.elements();
  return elements * static_cast<int64_t>(sizeof(float));
}

KeptLayers layers_to_keep(const Network& network, const TrainingData& data,
                          const TrainingOptions& options) {
  const bool always = options.data.keep_features == KeepFeatures::always;
  KeptLayers kept;
  if (options.data.keep_features == KeepFeatures::never) return kept;
  if (!always && options.freeze.empty()) return kept;
  const Unchanged part = unchanged_part(network, options.freeze);
  if (part.with_parameters == 0) {
    if (!always) return kept;
    throw InvalidArgument("[training] keep_features = always: no result can be kept, because `" +
                              part.first_after + "` " + part.why,
                          "freeze all layers with parameters from the inputs to some layer, or "
                          "set keep_features = \"auto\"");
  }
  const std::string layers = counted(part.with_parameters, "frozen layer");
  if (const std::string why = prevented(network, data, options); !why.empty()) {
    if (!always) {
      kept.notice = "the results of " + layers + " are computed in each iteration, because " + why;
      return kept;
    }
    throw InvalidArgument("[training] keep_features = always: the results of " + layers +
                              " cannot be kept, because " + why,
                          "change this, or set keep_features = \"auto\"");
  }
  std::set<std::string> given;
  for (const LayerNode& node : network.layers()) {
    if (part.layers.contains(node.name)) continue;
    for (const std::string& name : node.inputs) {
      if (part.layers.contains(name) && given.insert(name).second) kept.given.push_back(name);
    }
  }
  const LoweredNetwork lowered = network.lower(1, {.training = true, .outputs = kept.given});
  for (const int value : lowered.outputs) {
    kept.shapes.push_back(lowered.graph.shape(value).without_batch());
  }
  kept.layers = part.with_parameters;
  kept.rows = rows_of_shards(data.training->size(), options);
  return kept;
}

TrainingImages with_features(Network& network, const TrainingImages& images, const KeptLayers& kept,
                             ThreadPool& pool, const std::function<bool()>& interrupted) {
  TrainingImages result = images;
  result.given = kept.given;
  result.training =
      features_of(*images.training, kept,
                  FeatureRuns(network, *images.training, kept, true, kept.rows, pool.size()), pool,
                  interrupted);
  if (!images.validation) return result;
  // As evaluations compute them.
  result.validation = features_of(
      *images.validation, kept,
      FeatureRuns(network, *images.validation, kept, false, EvaluatedBatches::kChunk, pool.size()),
      pool, interrupted);
  return result;
}

}  // namespace lockstep
