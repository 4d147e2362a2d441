// Networks: any acyclic graph of named layers, with its learnables and state.
//
//   Network network({image_input({.height = 28, .width = 28, .channels = 1}),
//                    convolution2d({.filters = 20, .kernel = {5, 5}}), relu(),
//                    fully_connected({.units = 10}), softmax()});
//   network.initialize(0);
//   Tensor probabilities = network.predict(images);
//
// Not thread-safe, unless said otherwise. On the CPU forward() and predict() may run in several
// threads at once as long as nothing changes the network: neither anybody else nor they themselves,
// as they do where they update moving statistics.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// One layer at its place in a network.
struct LayerNode {
  std::string name;
  LayerPtr layer;
  std::vector<std::string> inputs;  // names of layers
  std::string shares;               // name of the layer whose learnables and state it uses, or ""
};

struct Learnable {
  std::string name;  // "<layer>.<parameter>"
  Tensor value;      // row-major f32, shared with the network
  ParameterSpec spec;
};

struct NetworkState {
  std::string name;  // "<layer>.<state>"
  Tensor value;      // row-major f32, shared with the network
};

// Something that keeps a network from running.
struct NetworkProblem {
  std::string layer;  // "" where it concerns the whole
  std::string message;
};

// A network as a graph of ops for a number of observations.
struct LoweredNetwork {
  Graph graph;
  std::vector<int> inputs;   // graph inputs of the input layers, in order
  std::vector<int> outputs;  // values of the output layers' results
  // In training mode; mean_output and variance_output are values until they are marked.
  std::vector<MovingStatistics> statistics;

  // Marks what `statistics` names as outputs of the graph, behind those there are. The same with
  // numbers of outputs.
  std::vector<MovingStatistics> mark_statistics();
};

struct LoweringOptions {
  bool training = false;
  bool pixels = false;  // inputs are u8 instead of f32
  // Names of layers whose results are wanted; what they do not depend on is left out. None: the
  // output layers.
  std::vector<std::string> outputs = {};
};

struct ForwardOptions {
  bool training = false;         // dropout on, batch statistics used and moving ones updated
  kernels::StepInfo step = {};   // what dropout's random numbers depend on
  DType precision = DType::f32;  // or bf16, f16: ops that take it compute with it
  bool record = true;            // as one node, by a tape that tracks what is used
  bool update_state = true;      // false: moving statistics stay as they are while training, too
  // Names of layers whose results are wanted instead of those of the output layers.
  std::vector<std::string> outputs = {};
};

struct NetworkPlan;

class Network {
 public:
  Network();
  // A sequence: each layer takes the one before it.
  Network(std::initializer_list<LayerPtr> layers);
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;
  // An independent network with the same layers and values.
  Network clone() const;

  // Adds a layer and returns its name. Without a name it gets "<type>_<number>"; without inputs it
  // takes the layer added before it (input layers take none). Inputs may be added later. Throws
  // InvalidArgument for a name that is taken or contains other than letters, digits and _-/.
  std::string add(LayerPtr layer, std::string name = {}, std::vector<std::string> inputs = {});
  // The layer `shared` once more, on another input, with the same learnables and state.
  std::string add_shared(std::string shared, std::string name = {},
                         std::vector<std::string> inputs = {});

  // What the network is trained with; see loss_names(). Throws InvalidArgument for an unknown one.
  void set_loss(const std::string& loss);
  const std::string& loss() const;

  const std::vector<LayerNode>& layers() const;
  // All that keeps it from running, each with its layer: sizes that do not fit, unknown inputs,
  // cycles, nothing to compute. Runs nothing; empty when all is well.
  std::vector<NetworkProblem> analyse() const;
  // Throws InvalidArgument listing the problems, if there are any.
  void check() const;
  // A table: name, type, output size, learnables, state; and the totals. The network must be sound.
  std::string summary() const;

  // Sizes of one observation.
  std::vector<Shape> input_shapes() const;
  std::vector<Shape> output_shapes() const;

  // Names ("<layer>.<parameter>") and shapes of all learnables and then all state that initialize()
  // makes, without making them. The network must be sound.
  std::vector<std::pair<std::string, Shape>> value_shapes() const;

  // (Re)starts learnables and state from a seed. The network must be sound. Until then learnables()
  // is empty.
  void initialize(uint64_t seed);
  // Gives learnables and state their sizes without memory for values: for looking at what a network
  // would take, by check_training(), lower() and Plan. It counts as initialized; predict() and
  // whatever else needs values throws InvalidArgument, until initialize().
  void initialize_sizes();
  bool initialized() const;
  const std::vector<Learnable>& learnables() const;
  const std::vector<NetworkState>& state() const;
  int64_t learnable_elements() const;
  // Moves learnables and state to a device, where forward() then runs; tensors handed out before
  // stay where they were. A network that initialize() starts later begins there too. Throws
  // Unsupported where the device cannot be used.
  void to(Device device);
  Device device() const;

  // Values of all learnables, for Tape::watch and Tape::gradient.
  std::vector<Tensor> learnable_values() const;
  // Throws InvalidArgument for an unknown name, with the nearest one.
  Tensor learnable(const std::string& name) const;
  Tensor state_value(const std::string& name) const;

  // Runs observations through the network: one tensor for each input layer, n x c x h x w
  // (features: n x c) of f32 or u8, on the network's device, as are the outputs. Returns the first
  // (only) output. Recorded as one node by a tape, which may outlive the network; its gradient()
  // throws InvalidArgument where learnables were changed since. Throws InvalidArgument where inputs
  // do not fit.
  Tensor forward(const std::vector<Tensor>& inputs, const ForwardOptions& options = {});
  // All outputs.
  std::vector<Tensor> forward_all(const std::vector<Tensor>& inputs, const ForwardOptions& options);
  // How many observations fit inputs hold. Throws InvalidArgument for others.
  int64_t check_inputs(std::span<const Tensor> inputs) const;
  // Outside training, without recording: the first output of a network with one input, n x ... for
  // an input of n x .... On the CPU a row of the result is, bit by bit, what it is for that
  // observation alone, whatever the others and n are: observations are run in batches of a fixed
  // size, the last one filled up with zeros (forward() runs all of them at once, and may round
  // otherwise for another n). Throws InvalidArgument where the input does not fit.
  Tensor predict(const Tensor& input);

  // For trainers: the ops for `n` observations, and the copies of learnables that plans read. Slots
  // of parameters and states are places in learnables() and state(). Pointers to states are
  // addresses on the network's device.
  LoweredNetwork lower(int64_t n, const LoweringOptions& options) const;
  PackedParameters& packed();
  std::vector<Shape> learnable_shapes() const;
  std::vector<const float*> state_pointers() const;

  // {"layers": [...], "loss": ...}, and back. `expression` evaluates text in numeric fields.
  nlohmann::ordered_json to_json() const;
  // The layers of to_json(), keys sorted, without fields that have their default values: a field
  // that is added to a layer later changes nothing in it. Thread-safe.
  nlohmann::json canonical_layers() const;
  static Network from_json(const nlohmann::json& object,
                           const FieldReader::Expression& expression = {});

 private:
  struct State;
  // The compiled network; made when first asked for.
  std::shared_ptr<NetworkPlan> plan_for(int64_t n, const LoweringOptions& options, DType precision,
                                        bool gradients);
  std::unique_ptr<State> state_;
};

// Brings a state up to date by its rule, in double; `value` is combined over the mini-batch.
void update_state(StateRule rule, float* state, const double* value, int64_t count,
                  double momentum);
// The larger one; NaN where one is.
inline double larger(double a, double b) { return a > b || a != a ? a : b; }
// Follows mini-batch statistics: state = (1 - momentum) * state + momentum * statistic, in double.
void update_moving(float* state, const double* statistic, int64_t count, double momentum);

}  // namespace lockstep
