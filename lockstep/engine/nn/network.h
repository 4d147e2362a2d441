// A network is an acyclic graph of named layers with its parameters and state.
//
//   Network network({image_input({.height = 28, .width = 28, .channels = 1}),
//                    convolution2d({.filters = 20, .kernel = {5, 5}}), relu(),
//                    fully_connected({.units = 10}), softmax()});
//   network.initialize(0);  // train(), or a loop, then sets the statistics of the input
//   Tensor probabilities = network.predict(images);
//
// Not thread-safe, unless stated otherwise. On the CPU, several threads may run forward() and
// predict() at the same time while nothing changes the network. forward() changes it when it
// updates moving statistics or carries states by row.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/nn/layer.h"

namespace lockstep {

// A layer in a network.
struct LayerNode {
  std::string name;
  LayerPtr layer;
  std::vector<std::string> inputs;  // names of layers
  std::string shares;               // name of the layer whose parameters and state it uses, or ""
};

struct Parameter {
  std::string name;  // "<layer>.<parameter>"
  Tensor value;      // row-major f32, shared with the network
  ParameterSpec spec;
};

struct NetworkState {
  std::string name;  // "<layer>.<state>"
  Tensor value;      // row-major f32, shared with the network
};

// A state by row (LayerBuilder::row_state()).
struct RowState {
  std::string name;   // "<layer>.<state>"
  Tensor value;       // rows x shape, row-major f32 on the CPU, shared with the network
  float initial = 0;  // value of each element after a reset
};

// An input or an output of a network. A value type.
struct NetworkValue {
  std::string name;         // of the layer
  Shape shape;              // of an observation; of sequences of a step
  bool sequence = false;    // observations have different numbers of steps
  DType type = DType::f32;  // i32: tokens

  // "3x32x32", "steps x 12", "steps"
  std::string to_string() const;
};

// A reason why a network cannot run.
struct NetworkProblem {
  std::string layer;  // "" if it concerns the whole network
  std::string message;
};

struct ForwardOptions {
  bool training = false;         // dropout, batch statistics, update of moving statistics
  RandomContext step = {};       // key of dropout's random numbers; {}: not given
  DType precision = DType::f32;  // or bf16, f16: ops that support it compute with it
  bool record = true;        // record as one node on each tape that tracks an input or parameter
  bool update_state = true;  // false: training leaves moving statistics unchanged
  // Carry states by row, in training or not, if make_row_states() was called: row i reads what row
  // i of the run before has left.
  bool carry = true;
  // Names of layers whose results are returned instead of those of the output layers.
  std::vector<std::string> outputs = {};
  // The lengths of each input that is a sequence, in order: n numbers of i32. None: all steps of
  // all inputs are valid.
  std::vector<Tensor> lengths = {};
};

// The names of the columns of the tables that a network learned from. A value type.
struct TableColumns {
  // For each input layer, in order: the names of its elements; empty: they have no names.
  std::vector<std::vector<std::string>> inputs = {};
  std::vector<std::string> target = {};     // the same, of targets that are arrays
  std::string label = {};                   // the column with the classes; "": it has no name
  std::map<std::string, float> means = {};  // what stands for missing values, by column

  bool empty() const;  // there is no name
  // {"inputs": [["length", "width"]], "target": [], "label": "kind"}
  nlohmann::ordered_json to_json() const;
  // Throws InvalidArgument for other JSON.
  static TableColumns from_json(const nlohmann::json& object);

  friend bool operator==(const TableColumns&, const TableColumns&) = default;
};

class FixedParameters;
class OwnSegments;
class PackedParameters;
struct LoweredNetwork;
struct LoweringOptions;
struct NetworkPlan;
struct SegmentStates;

class Network {
 public:
  Network();
  // A sequence: the input of each layer is the layer before it.
  Network(std::initializer_list<LayerPtr> layers);
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;
  // Returns an independent network with the same layers and values.
  Network clone() const;

  // Adds a layer and returns its name. The default name is "<type>_<number>". The default input is
  // the layer added before (none for input layers). Layers named as inputs may be added later.
  // Throws InvalidArgument for a name that is already used, has more than 200 characters or
  // contains characters other than letters, digits, _, -, / and the dot.
  std::string add(LayerPtr layer, std::string name = {}, std::vector<std::string> inputs = {});
  // Adds the layer `shared` again with another input and the same parameters and state.
  std::string add_shared(std::string shared, std::string name = {},
                         std::vector<std::string> inputs = {});

  // Sets the loss for training: "cross_entropy" (the default), "mean_squared_error", or an
  // expression of `output` and `target` with functions of lockstep::ops, such as
  // "huber(output, target, delta=0.1) + 0.01 * mean(abs(output))", that gives one number for each
  // observation (docs/guide.md). Throws InvalidArgument for an unknown loss, with the position in
  // an expression.
  void set_loss(const std::string& loss);
  const std::string& loss() const;

  const std::vector<LayerNode>& layers() const;
  // Returns all problems that keep the network from running: sizes that do not fit, unknown inputs,
  // cycles, no layers, no input layer. Runs nothing. Empty if the network is valid.
  std::vector<NetworkProblem> analyze() const;
  // Throws InvalidArgument with a list of the problems, if there are any.
  void check() const;
  // Returns a table with name, type, inputs, output size, parameters and state of each layer, and
  // the totals. Throws InvalidArgument if the network has problems.
  std::string summary() const;

  // Names of the input layers, and shapes of one observation; of sequences of one step.
  std::vector<std::string> input_names() const;
  std::vector<Shape> input_shapes() const;
  std::vector<Shape> output_shapes() const;
  // The same with what else is known of them. outputs() throws InvalidArgument if the network has
  // problems.
  std::vector<NetworkValue> inputs() const;
  std::vector<NetworkValue> outputs() const;

  // The columns of the tables that the network learned from; empty: none, or they have no names.
  // train() sets them, and model files keep them. match_columns() gives other tables their order
  // (see train/input/training_data.h).
  const TableColumns& columns() const;
  // Throws InvalidArgument for another number of inputs or of an input's elements than the network
  // has, for names that are empty, equal or not UTF-8, and if the network has problems.
  void set_columns(TableColumns columns);

  // Returns the names ("<layer>.<parameter>") and shapes of all parameters, then of all states,
  // that initialize() would create. Creates nothing. Throws InvalidArgument if the network has
  // problems.
  std::vector<std::pair<std::string, Shape>> value_shapes() const;

  // Sets parameters and state to their initial values for a seed. Before, parameters() is empty.
  // Throws InvalidArgument if the network has problems.
  void initialize(uint64_t seed);
  // Gives parameters and state their sizes without memory for values, to determine what a network
  // would need: for check_training(), lower() and Plan. initialized() is then true. predict() and
  // other functions that need values throw InvalidArgument until initialize().
  void initialize_sizes();
  bool initialized() const;
  const std::vector<Parameter>& parameters() const;
  const std::vector<NetworkState>& state() const;
  int64_t parameter_elements() const;

  // States by row: for layers that carry values from one mini-batch to the next. Until they are
  // made for a number of rows, every run begins with their initial values. From then on forward()
  // carries them, in training or not; predict() and evaluate() do not. train() makes them for its
  // mini-batches, where forward() leaves them alone, resets them at the beginning of each epoch,
  // and removes them at the end. make_row_states(): for mini-batches of up to `rows` observations,
  // all at their initial values; 0 removes them. `forward_carries`: false for trainers, which carry
  // them. Throws InvalidArgument for a negative number and if the network has problems.
  void make_row_states(int64_t rows, bool forward_carries = true);
  // initialize() resets them, too.
  void reset_row_states();
  // Empty if they are not made, or no layer has any.
  const std::vector<RowState>& row_states() const;
  // The rows that they are made for; 0: none.
  int64_t made_rows() const;
  // Their names and the shapes of a row, whether they are made or not. Throws InvalidArgument if
  // the network has problems.
  std::vector<std::pair<std::string, Shape>> row_state_shapes() const;
  // Moves parameters and state to a device, where forward() then runs. Tensors returned before are
  // unchanged. A later initialize() creates values on the device. Throws Unsupported if the device
  // cannot be used.
  void to(Device device);
  Device device() const;

  // Values of all parameters, for Tape::watch() and Tape::gradient().
  std::vector<Tensor> parameter_values() const;
  // Throw InvalidArgument for an unknown name, with the most similar name as a hint.
  Tensor parameter(const std::string& name) const;
  Tensor state_value(const std::string& name) const;

  // Runs observations through the network. `inputs`: one tensor for each input layer, n x c x h x w
  // (features: n x c), f32 or u8; of sequences n x steps x c (f32; tokens: n x steps, i32) with
  // options.lengths; on the network's device. Outputs are on the same device; of sequences n x
  // steps x ..., where what follows the valid steps is undefined but finite. Returns the first
  // output. A tape records the run as one node and may outlive the network. gradient() of
  // that tape throws InvalidArgument if parameters have changed since. Throws InvalidArgument if
  // inputs do not fit or lack their statistics (set_input_normalization(), input/training_data.h),
  // or if a layer draws random numbers and no step is given.
  Tensor forward(const std::vector<Tensor>& inputs, const ForwardOptions& options = {});
  // Like forward(), but returns all outputs.
  std::vector<Tensor> forward_all(const std::vector<Tensor>& inputs, const ForwardOptions& options);
  // Returns the number of observations in `inputs`. Throws InvalidArgument if the inputs do not
  // fit.
  int64_t check_inputs(std::span<const Tensor> inputs) const;
  // Returns the lengths of the inputs that are sequences, on the network's device: those given, or
  // all steps. Throws InvalidArgument for lengths that do not fit. `inputs` have been checked.
  // `known`: the given lengths on the CPU; empty: they are read from their device, with a wait.
  std::vector<Tensor> sequence_lengths(std::span<const Tensor> inputs,
                                       const std::vector<Tensor>& given,
                                       const std::vector<Tensor>& known = {}) const;
  // Runs a network with one input outside training, without recording. Returns the first output: n
  // x ... for an input of n x .... On the CPU, a row of the result does not depend on n or on the
  // other observations, bit by bit. For this, observations are run in batches of a fixed size, and
  // zeros fill the last batch. forward() runs all observations at once, so its rounding may depend
  // on n. Throws InvalidArgument if the input does not fit.
  Tensor predict(const Tensor& input);
  // The same for sequences with these lengths (n numbers of i32). Steps after them have zeros in
  // the result. A row of the result does not depend on the number of steps of the tensor either.
  Tensor predict(const Tensor& input, const Tensor& lengths);

  // Predicts the next segment of each sequence, of one step or more, and keeps the states of its
  // recurrent layers, whether or not they have carry_state, and what causal attention and
  // convolutions need, for the segment that follows in the next call. Results have the bits of
  // predict() of the whole sequences, whatever the sizes of the segments and the other rows (after
  // convolutions up to rounding); a result by sequence (output = "last") is that of the steps until
  // now. A length of 0: this sequence has no step in this segment, and its state stays. Independent
  // of make_row_states(); clone() copies what is kept. Not thread-safe. Throws InvalidArgument if
  // the input does not fit or is not a sequence, for another number of sequences than in the call
  // before, for more steps in all than position_embedding has positions, in losses of shards, and
  // for networks with layers that need later steps (bidirectional ones, attention and convolutions
  // that are not causal, pooling), which it names.
  Tensor predict_and_update(const Tensor& input);
  Tensor predict_and_update(const Tensor& input, const Tensor& lengths);
  // The next call of predict_and_update() begins new sequences, any number of them. So does
  // initialize().
  void reset_state();
  // The most steps that a sequence may have in all its segments: of layers that have no limit, the
  // largest number; 0: the network cannot run segment by segment.
  int64_t most_steps_in_segments() const;

  // For trainers. lower() returns the ops for `n` observations, packed() the copies of parameters
  // that plans read. Slots of parameters and states are indices into parameters() and state().
  // Pointers to states are addresses on the network's device.
  LoweredNetwork lower(int64_t n, const LoweringOptions& options) const;
  PackedParameters& packed();
  std::vector<Shape> parameter_shapes() const;
  std::vector<const float*> state_pointers() const;

  // to_json() returns {"layers": [...], "loss": ...}, and from_json() reads it. `expression`
  // evaluates text in numeric fields.
  nlohmann::ordered_json to_json() const;
  // The layers of to_json() with sorted keys and without fields that have their default values. A
  // field that is added to a layer later therefore does not change the result. Thread-safe.
  nlohmann::json canonical_layers() const;
  static Network from_json(const nlohmann::json& object,
                           const FieldReader::Expression& expression = {});

 private:
  struct State;
  // Returns the compiled network, which is compiled on first use.
  std::shared_ptr<NetworkPlan> plan_for(int64_t n, const LoweringOptions& options, DType precision,
                                        bool gradients);
  // Runs a group of segments of sequences, whose states are these rows of `states`, and updates
  // them, but for the numbers of steps.
  Tensor run_segments(const Tensor& input, const Tensor& lengths, std::span<const int64_t> rows,
                      const SegmentStates& states);
  // Makes the copies of parameters that plans read agree with them.
  void refresh_packed();
  friend class FixedParameters;
  friend class OwnSegments;
  std::unique_ptr<State> state_;
};

// Returns the digest of a network's parameters and states, for comparisons.
Digest network_digest(const Network& network);

}  // namespace lockstep
