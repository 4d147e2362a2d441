// Networks lowered to graphs of ops, for trainers, and the rules by which states follow
// mini-batches.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/plan/packed_parameters.h"

namespace lockstep {

// A state that follows values of the mini-batch. Rules for one state use the fields of the mean;
// the fields of the variance are then equal to them.
struct MovingStatistics {
  int mean_state = 0, variance_state = 0;    // numbers of states
  int mean_output = 0, variance_output = 0;  // numbers of the graph's outputs
  double momentum = 0.1;
  StateRule rule = StateRule::mean_and_variance;
  int64_t channels = 0;  // elements of each of the two outputs, once they are marked
  // The last element of each output is not a statistic, but the number of values that they are of.
  bool counted = false;
  std::string layer = {};
  int64_t elements() const { return counted ? channels - 1 : channels; }  // of the states
};

// A state by row: a pair of an input and an output of the lowered network, n x a row.
struct Carry {
  std::string name;  // "<layer>.<state>"
  int input = 0;     // number of the graph's input
  int output = -1;   // a value; mark_carries(): number of the output
  // The input holds earlier steps, n x capacity x ..., and the output those of the segment, which
  // follow them.
  bool appends = false;
};

// A value of a lowered network.
struct LoweredValue {
  int value = -1;
  int lengths = -1;  // of a sequence (n x steps x ...): the value of its lengths, n of i32
};

// Of an output of a lowered network that is denormalized: the value before, and the states by which
// it is, each of its channels. -1: it is not.
struct TargetScaling {
  int normalized = -1, offset = -1, scale = -1;
};

// One of several results of a network that ends in outputs(), or in denormalization() after it.
struct LoweredOutput {
  std::string name;  // of its layer
  int value = -1;    // before a softmax, not denormalized
  std::string loss;
  double weight = 1;
};

// Two inputs of a network that a layer combines step by step, so that both sequences of an
// observation have as many steps.
struct CombinedSequences {
  std::string layer, names[2];
  size_t inputs[2] = {};     // their numbers
  size_t sequences[2] = {};  // among the inputs that are sequences

  // Throws InvalidArgument for different lengths, in steps. `of`: names the observation.
  [[noreturn]] void refuse(int64_t first, int64_t second, const std::string& of) const;
};

// Throws InvalidArgument, naming the observation by its row, unless combined sequences have equal
// lengths. `lengths`: of the inputs that are sequences, in order, n numbers of i32. `first_row`: of
// the mini-batch, that the first of them belongs to.
void check_combined(std::span<const CombinedSequences> combined, std::span<const Tensor> lengths,
                    int64_t first_row = 0);

// A network lowered to a graph of ops for a number of observations.
struct LoweredNetwork {
  Graph graph;
  std::vector<int> inputs;   // values of the input layers' data, in order: the first graph inputs
  std::vector<int> outputs;  // values of the output layers' results
  // The lengths of inputs and outputs that are sequences; -1: of others. Those of inputs are the
  // next graph inputs, in order.
  std::vector<int> input_lengths, output_lengths;
  std::vector<TargetScaling> output_scaling;  // of each output
  std::vector<LoweredOutput> parts;           // of the first output; empty: it is one result
  // Only in training mode. mean_output and variance_output are values until mark_statistics().
  std::vector<MovingStatistics> statistics;
  std::vector<Carry> carries;  // only with LoweringOptions::carry, with values as outputs
  int earlier = -1;  // number of the graph's input for the numbers of earlier steps, n of i32
  // Batch normalizations with given statistics whose rows are the steps of sequences: number of the
  // node, and the value of the lengths.
  std::map<size_t, int> normalized_steps;
  std::vector<CombinedSequences> combined;

  // Of a layer that is applied to each step of several inputs.
  void note_combined(const LayerNode& node, std::span<const LoweredValue> values,
                     const std::vector<NetworkValue>& network_inputs);

  // Of a layer whose nodes begin with number `first`, and the lengths of its input.
  void note_normalized_steps(const Layer& layer, size_t first, int lengths);
  // The numbers of the graph's inputs for lengths, in the order of the inputs that are sequences.
  std::vector<int> length_inputs() const;
  // Marks the values in `statistics` as outputs of the graph, after the existing ones. Returns the
  // statistics with numbers of outputs instead of values.
  std::vector<MovingStatistics> mark_statistics();
  // The same for the carries.
  std::vector<Carry> mark_carries();
};

struct LoweringOptions {
  bool training = false;
  // The type of each input layer's observations: u8 (pixels) or f32. Empty: f32.
  std::vector<DType> inputs = {};
  // Names of layers whose results are the outputs. Layers that they do not depend on are left out.
  // Empty: the output layers.
  std::vector<std::string> outputs = {};
  // States by row are inputs and outputs, else constants.
  bool carry = false;
  // The number of steps of each input layer's observations, which is read where they are sequences.
  // Empty: a few, for questions that do not depend on it.
  std::vector<int64_t> steps = {};
  // The network runs segment by segment: recurrent layers have states by row, whatever their fields
  // say. Layers that keep steps have room for `capacity` steps of each observation, those of the
  // segment included.
  bool in_segments = false;
  int64_t capacity = 0;

  bool operator==(const LoweringOptions&) const = default;
};

// What Network::forward() and forward_all() of a thread may do. Later ones are stricter.
enum class ForwardLimit : uint8_t {
  none,
  // Those that would carry states by row throw InvalidArgument: for losses of shards, which several
  // threads compute at once.
  carry_refused,
  // They compute as in inference, carry nothing and leave states unchanged, whatever their options
  // say: for trials, which leave no trace.
  predictions,
};

// Limits the forward runs of its thread during its lifetime. The strictest limit of nested ones
// applies.
class LimitedForward {
 public:
  explicit LimitedForward(ForwardLimit limit);
  ~LimitedForward();
  // The limit of the calling thread.
  static ForwardLimit now();
  LimitedForward(const LimitedForward&) = delete;
  LimitedForward& operator=(const LimitedForward&) = delete;

 private:
  const ForwardLimit before_;
};

// Updates a state by its rule, in double precision. `value` is combined over the mini-batch.
void update_state(StateRule rule, float* state, const double* value, int64_t count,
                  double momentum);
// Returns the larger argument, or NaN if one is NaN.
inline double larger(double a, double b) { return a > b || a != a ? a : b; }
// Updates moving statistics: state = (1 - momentum) * state + momentum * statistic, in double
// precision.
void update_moving(float* state, const double* statistic, int64_t count, double momentum);

}  // namespace lockstep
