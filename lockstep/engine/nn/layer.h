// Layers, from which networks are built. A layer knows its fields and how it is built from ops,
// parameters and states. All layers are in one registry, which job files, model files, summaries
// and documentation use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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
  // rows and columns is orthonormal. "zeros", "ones". "unit-forget-gate": of an LSTM's bias, ones
  // for the forget gate, which is the second quarter, and zeros.
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

class Layer;

// Layer::build() declares parameters and states with it. Ops on its values become ops of the layer.
// All functions throw InvalidArgument, naming the layer, for arguments that do not fit. Not
// thread-safe.
class LayerBuilder : private ValueBuilder {
 public:
  LayerBuilder(const LayerBuilder&) = delete;
  LayerBuilder& operator=(const LayerBuilder&) = delete;

  bool training() const;
  // The layer's name in its network. key_from_text(name()) is a key for an op's random numbers.
  const std::string& name() const;

  // Declares a parameter. Parameters and states are numbered in the order of their declarations, so
  // declare each in its own statement: C++ evaluates the arguments of a call in any order. The name
  // is unique in the layer; see ParameterSpec for initializers. fan_in and fan_out are computed as
  // for weights of o x i x .... Pass a ParameterSpec to set them explicitly.
  Value parameter(const std::string& name, const Shape& shape,
                  const std::string& initializer = "glorot");
  Value parameter(const ParameterSpec& spec);
  // Declares a state: values that are kept between iterations without being learned. A state
  // changes only by one of the rules below, after training iterations; without a rule it keeps its
  // initial value. The returned value is the state before the iteration.
  Value state(const std::string& name, const Shape& shape, float initial = 0);

  // The rules. Each one takes a state and a value of the same shape that is computed from one
  // shard. The new state follows the whole mini-batch and does not depend on the division into
  // shards. Outside training the rules have no effect. A state has at most one rule.
  //
  // follow_mean(): `mean` is the mean over the shard's observations. state = (1 - momentum) * state
  // + momentum * (mean over the mini-batch).
  void follow_mean(Value state, Value mean, double momentum = 0.1);
  // The same for a mean and a variance (divided by the count), which is combined exactly.
  void follow_mean_and_variance(Value mean_state, Value variance_state, Value mean, Value variance,
                                double momentum = 0.1);
  // The same for statistics of `count` values (one number of f32) that differ in number from shard
  // to shard, as valid steps do: each shard counts by it. One of 0 values counts for nothing, and
  // one of a single value is refused where it occurs, because its variance is 0.
  void follow_mean_and_variance(Value mean_state, Value variance_state, Value mean, Value variance,
                                Value count, double momentum = 0.1);
  // state = state + (sum over the mini-batch).
  void add_sum(Value state, Value sum);
  // state = max(state, largest of the mini-batch), element by element.
  void keep_maximum(Value state, Value maximum);

  // Declares a state by row, as recurrent layers have it: row i of a mini-batch reads what row i of
  // the mini-batch before has left. The returned value is n x `row`. It is `initial` in every row
  // in the first iteration of an epoch, and wherever nothing is carried; see
  // Network::make_row_states(). Derivatives end at it: they do not pass into earlier iterations.
  Value row_state(const std::string& name, const Shape& row, float initial = 0);
  // What the state is in the next iteration: n x row. Each state by row needs exactly one call.
  void carry(Value state, Value next);

  // Of an input that is a sequence, n x steps x ...: how many steps each observation has, n numbers
  // of i32. The steps after them are padding, with any finite values, which must not reach any
  // result. Undefined if the input is not a sequence. Only for layers that take whole sequences
  // (Layer::takes_sequences()).
  Value lengths(const Value& input);
  // Whether the network runs segment by segment (Network::predict_and_update()): the inputs are the
  // next steps of sequences whose earlier steps other runs have seen. A layer that takes whole
  // sequences calls this, and then keeps what it needs of earlier steps in states by row, or
  // throws. One that does neither is refused in such networks.
  bool in_segments();
  // The following need in_segments(), and throw InvalidArgument elsewhere. earlier_steps(): how
  // many earlier steps the observations have had, n numbers of i32.
  Value earlier_steps();
  // The steps of `x` (n x steps x ..., f32) after those that it had in earlier segments: n x
  // capacity x ..., of which the first earlier_steps() + lengths() are valid. They are kept, by the
  // name, for the segments that follow. The capacity grows with the longest observation.
  Value with_earlier_steps(const std::string& name, const Value& x);
  // No observation may have more than `most` steps in all its segments; predict_and_update() throws
  // InvalidArgument, naming the layer, for more.
  void limit_steps(int64_t most);
  // The lengths of the result, if they are not those of the first input that is a sequence.
  // Undefined: the result is not a sequence. Without this call, it is one if it has a dimension of
  // steps like that input, and not fewer dimensions.
  void set_lengths(const Value& lengths);

 private:
  struct Target;
  friend struct LayerBuild;
  // A value of this build; its number is its position among them.
  struct Built {
    int number;      // in the graph; -1: a parameter or state that no op has read
    bool parameter;  // if k >= 0: a parameter, else a state
    int k;           // index among the layer's parameters or states; -1: another value
  };

  explicit LayerBuilder(const Target& target) : target_(target) {}
  TensorSpec spec_of(int value) const override;
  std::vector<int> add(OpPtr op, std::vector<int> inputs) override;
  Value value(const Built& built);
  std::vector<Value> values(std::span<const int> numbers);
  // The position of a value, which must be one of this build, and its number in the graph.
  int position_of(const Value& value) const;
  int number_of(const Value& value);
  int number_at(int position);
  int state_of(const Value& value);  // its index; notes that it has a rule
  // Throws unless the value has the state's shape.
  void check_same(const Value& state, const Value& value) const;
  void follow(StateRule rule, Value state, Value value, double momentum);
  void follow_moments(const Value& mean_state, const Value& variance_state, const Value& mean,
                      const Value& variance, const Value* count, double momentum);
  // Throws unless each state by row is carried.
  void check_carried() const;
  void require_segments(const char* what);
  // Throws if the layer is applied to each step of a sequence.
  void refuse_by_step(const char* what) const;
  void note(const std::string& what, const std::vector<Value>& values);

  const Target& target_;
  std::vector<Built> values_;
  std::vector<int> followed_;  // indices of states that have a rule
  // A state by row: its name, the position of its value, and whether it is carried.
  struct ByRow {
    std::string name;
    int position;
    bool carried = false;
  };
  std::vector<ByRow> by_row_;
  bool by_step_ = false;              // the layer is applied to each step
  bool asked_for_segments_ = false;   // by in_segments()
  std::vector<int> lengths_;          // positions, by input; -1: not a sequence
  std::optional<Value> set_lengths_;  // by set_lengths()
  std::vector<std::string> notes_;
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
  // Of an input layer: observations are sequences, n x steps x input_shape(), with different
  // numbers of steps.
  virtual bool is_sequence_input() const { return false; }
  // Of an input layer: observations are numbers of words, characters and the like (i32).
  virtual bool is_token_input() const { return false; }
  // Whether build() receives sequences as a whole. Otherwise the layer is applied to each step: its
  // observations are the steps of all sequences.
  virtual bool takes_sequences() const { return false; }
  // Declares parameters and states, adds the layer's ops and returns its result. Input layers
  // receive the data. Throws InvalidArgument if the inputs do not fit.
  virtual Value build(LayerBuilder& layer, const std::vector<Value>& inputs) const = 0;
};
using LayerPtr = std::shared_ptr<const Layer>;

// An entry of the registry.
struct LayerInfo {
  std::string type;
  std::string help;  // one line
  std::function<LayerPtr(FieldReader&)> read;
  std::vector<FieldInfo> fields;
};

// All layers in alphabetical order of their types.
const std::vector<LayerInfo>& layer_registry();
// Used by register_layer().
void add_to_layer_registry(LayerInfo info);

// Reads a layer from {"type": ..., fields}. `where` names the location in error messages. `also`
// lists keys that the caller handles. Throws InvalidArgument for unknown types, with the most
// similar type as a hint, and for invalid fields.
LayerPtr read_layer(const nlohmann::json& object, const std::string& where,
                    const FieldReader::Expression& expression, std::vector<std::string> also);

// Writes a layer as its type and all fields.
nlohmann::ordered_json write_layer(const Layer& layer);

}  // namespace lockstep
