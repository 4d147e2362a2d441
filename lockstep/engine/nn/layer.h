// Layers, from which networks are built. A layer knows its fields, its parameters and states for
// given input sizes, and how to lower itself to ops. All layers are in one registry, which job
// files, model files, summaries and documentation use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/autograd/tape.h"

namespace lockstep {

// A parameter that a layer needs.
struct ParameterSpec {
  std::string name;  // "weights", "bias", "scale", "shift"
  Shape shape;
  // "glorot": uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot, Bengio 2010). "he": normal with
  // variance 2 / fan_in (He et al. 2015). "narrow-normal": normal with standard deviation 0.01.
  // "orthogonal": Q of the QR decomposition of a normal matrix (Saxe et al. 2014); the smaller of
  // rows and columns is orthonormal. "zeros", "ones".
  std::string initializer;
  int64_t fan_in = 1;  // inputs of one output, for initializers that scale
  int64_t fan_out = 1;
  double l2_factor = 1;             // times the training option `l2`
  double learning_rate_factor = 1;  // times the learning rate
};

// A state: values that a layer keeps between iterations and that are not learned.
struct StateSpec {
  std::string name;
  Shape shape;
  float initial = 0;
};

// The rule by which a state changes after each training iteration.
enum class StateRule : uint8_t {
  // Two states: state = (1 - momentum) * state + momentum * statistic. The statistics of shards are
  // combined first: mean = sum w_j mean_j; variance = sum w_j (variance_j + (mean_j - mean)^2),
  // where w_j is the shard's share of the observations. Variances are divided by the count.
  mean_and_variance,
  mean,     // one state, handled like the mean above
  sum,      // state = state + sum over shards
  maximum,  // state = max(state, largest of the shards)
};

// The interface through which a layer adds its ops to a graph.
class LoweringLayer : public ValueBuilder {
 public:
  virtual bool training() const = 0;
  virtual const std::string& name() const = 0;
  // Values of the layer's parameters and states. `k` is the index in the layer's parameters() and
  // states().
  virtual int parameter(int k) = 0;
  virtual int state(int k) = 0;
  Shape shape(int value) const { return spec_of(value).shape; }
  // The value of the input data; only for input layers.
  virtual int input() = 0;
  // Makes states k_mean and k_variance follow two values by StateRule::mean_and_variance.
  virtual void follow(int k_mean, int k_variance, int mean, int variance, double momentum) = 0;
  // Makes state k follow a value by a rule for one state.
  virtual void follow(StateRule rule, int k, int value, double momentum) = 0;
};

// Immutable, thread-safe.
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string_view type() const = 0;
  // Visits all fields with their values.
  virtual void visit(FieldVisitor& visitor) const = 0;
  // Visits all fields with their default values. Layers without default values visit nothing.
  virtual void visit_defaults(FieldVisitor&) const {}
  // The smallest and largest number of inputs.
  virtual int least_inputs() const { return 1; }
  virtual int most_inputs() const { return 1; }
  // input_shape() is the size of one observation for input layers. Other layers return a scalar
  // shape, which is ignored.
  virtual bool is_input() const { return false; }
  virtual Shape input_shape() const { return {}; }
  // Parameters and states for inputs of these shapes, whose first dimension counts observations.
  virtual std::vector<ParameterSpec> parameters(std::span<const Shape>) const { return {}; }
  virtual std::vector<StateSpec> states(std::span<const Shape>) const { return {}; }
  // Adds the layer's ops and returns the value of its result. Throws InvalidArgument if the inputs
  // do not fit.
  virtual int lower(LoweringLayer& context, std::span<const int> inputs) const = 0;
};
using LayerPtr = std::shared_ptr<const Layer>;

// A layer with an options struct that has kType, kHelp and visit().
template <class Options>
class LayerWith : public Layer {
 public:
  explicit LayerWith(Options options) : options_(std::move(options)) {}
  std::string_view type() const override { return Options::kType; }
  void visit(FieldVisitor& visitor) const override {
    Options copy = options_;
    copy.visit(visitor);
  }
  void visit_defaults(FieldVisitor& visitor) const override {
    Options defaults;
    defaults.visit(visitor);
  }
  const Options& options() const { return options_; }

 private:
  Options options_;
};

// An entry of the registry.
struct LayerInfo {
  std::string type;
  std::string help;  // one line
  std::function<LayerPtr(FieldReader&)> read;
  std::vector<FieldInfo> fields;
};

template <class L, class Options>
LayerInfo layer_info() {
  FieldLister lister;
  Options defaults;
  defaults.visit(lister);
  return {Options::kType, Options::kHelp,
          [](FieldReader& reader) -> LayerPtr {
            Options options;
            options.visit(reader);
            return std::make_shared<L>(options);
          },
          lister.fields};
}

// All layers in alphabetical order of their types.
const std::vector<LayerInfo>& layer_registry();
// Used by register_layer().
void add_to_layer_registry(LayerInfo info);

// Reads a layer from {"type": ..., fields}. `where` names the place in error messages. `also` lists
// keys that the caller handles. Throws InvalidArgument for unknown types, with the most similar
// type as a hint, and for invalid fields.
LayerPtr read_layer(const nlohmann::json& object, const std::string& where,
                    const FieldReader::Expression& expression, std::vector<std::string> also);

// Writes a layer as its type and all fields.
nlohmann::ordered_json write_layer(const Layer& layer);

}  // namespace lockstep
