// A graph of ops for given shapes, from which a plan is compiled.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/graph/op.h"

namespace lockstep {

// Values are numbered in the order of their creation. A node's inputs exist before the node, so the
// order of nodes is an order of execution.
class Graph {
 public:
  enum class Source : uint8_t { input, parameter, state, output_gradient, computed };
  struct Value {
    Source source;
    int slot;  // number of the input, parameter, state or output; for computed values the node
    Shape shape;
    DType dtype;
  };
  struct Node {
    OpPtr op;
    std::string name;
    std::vector<int> inputs, outputs;  // values
  };

  // Adds an input that is set before each run, row-major. Returns the value.
  int add_input(const Shape& shape, DType dtype);
  // Adds parameter number `slot` (the caller's numbering), f32. The same slot returns the same
  // value.
  int add_parameter(int slot, const Shape& shape);
  // Adds a state that the graph only reads, f32. The same slot returns the same value.
  int add_state(int slot, const Shape& shape);
  // Adds the derivative with respect to output number `slot`, from which a backward run starts,
  // f32.
  int add_output_gradient(int slot, const Shape& shape);
  // Applies an op to values. Returns its outputs. Throws InvalidArgument, with `name` in the
  // message, if shapes do not fit.
  std::vector<int> add(OpPtr op, std::vector<int> inputs, const std::string& name);
  // Marks a value that the caller reads after a forward run. Returns the number of the output.
  int mark_output(int value);

  // Takes the marks of all outputs away.
  void unmark_outputs() { outputs_.clear(); }

  // References to values, nodes and shapes stay valid while others are added.
  const std::deque<Value>& values() const { return values_; }
  const std::deque<Node>& nodes() const { return nodes_; }
  const std::vector<int>& outputs() const { return outputs_; }
  int inputs() const { return inputs_; }
  // The value of input number `i`.
  int input(int i) const { return find(Source::input, i); }
  const Shape& shape(int value) const { return values_[static_cast<size_t>(value)].shape; }
  // Shape and type, row-major.
  TensorSpec spec(int value) const;

  // The slots of all values of a source, in increasing order.
  std::vector<int> slots(Source source) const;
  // Returns the graph with its parameters, and then its states, as further inputs, in the order of
  // their slots.
  Graph with_inputs_alone() const;
  // Returns the graph without nodes and outputs: inputs, parameters, states and output gradients.
  // moved[v]: the number there of value v; -1: it is computed.
  Graph without_nodes(std::vector<int>& moved) const;
  // Returns the graph without nodes on which no output depends.
  Graph pruned() const;
  // Returns the graph with inputs handed over from op to op (Op::hand_over), if `table` has kernels
  // for it, and with pairs of ops fused, repeated until no pair is left. `differentiated`:
  // outputs (by number) whose derivatives a backward run starts from; those values stay results of
  // their ops. `table`: fuses only into ops for which it has kernels; null allows all, and hands
  // nothing over.
  Graph fused(std::span<const int> differentiated = {},
              const kernels::Table* table = nullptr) const;

 private:
  Graph with_inputs_handed_over(const kernels::Table& table) const;
  // The nodes that read each value, in order.
  std::vector<std::vector<int>> readers() const;
  // Fuses each pair once.
  Graph with_pairs_fused(std::span<const int> differentiated, const kernels::Table* table) const;
  int add_value(const Value& value);
  int find(Source source, int slot) const;
  std::deque<Value> values_;
  std::deque<Node> nodes_;
  std::vector<int> outputs_;
  int inputs_ = 0;
};

// Adds ops to a graph, as nodes of one name.
class GraphBuilder final : public ValueBuilder {
 public:
  GraphBuilder(Graph& graph, std::string name) : graph_(graph), name_(std::move(name)) {}
  TensorSpec spec_of(int value) const override { return graph_.spec(value); }
  std::vector<int> add(OpPtr op, std::vector<int> inputs) override {
    return graph_.add(std::move(op), std::move(inputs), name_);
  }

 private:
  Graph& graph_;
  std::string name_;
};

}  // namespace lockstep
