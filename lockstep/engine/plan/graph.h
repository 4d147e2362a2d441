// A graph of ops for given shapes: what a plan is compiled from.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/autograd/op.h"

namespace lockstep {

// Values are numbered in the order in which they were made; a node's inputs exist before it, so
// the order of nodes is an order of execution.
class Graph {
 public:
  enum class Source : uint8_t { input, parameter, state, computed };
  struct Value {
    Source source;
    int slot;  // which input, parameter or state; for computed values the node
    Shape shape;
    DType dtype;
  };
  struct Node {
    OpPtr op;
    std::string name;
    std::vector<int> inputs, outputs;  // values
  };

  // Data given anew for each run, row-major. Returns the value.
  int add_input(const Shape& shape, DType dtype);
  // Parameter number `slot` (the caller's numbering), f32. The same slot gives the same value.
  int add_parameter(int slot, const Shape& shape);
  // State that is read, f32.
  int add_state(int slot, const Shape& shape);
  // An op applied to values. Returns its outputs. Throws InvalidArgument where shapes do not fit,
  // with `name` in the message.
  std::vector<int> add(OpPtr op, std::vector<int> inputs, const std::string& name);
  // Marks a value to be read by the caller after a forward run. Returns the output's number.
  int mark_output(int value);

  // References to values, nodes and shapes stay good while others are added.
  const std::deque<Value>& values() const { return values_; }
  const std::deque<Node>& nodes() const { return nodes_; }
  const std::vector<int>& outputs() const { return outputs_; }
  int inputs() const { return inputs_; }
  const Shape& shape(int value) const { return values_[static_cast<size_t>(value)].shape; }

  // The same graph with ops that can be one replaced by it, until there are none left. `seeds`:
  // outputs (by number) whose derivatives a backward run starts from; those values stay results of
  // their ops. `table`: only ops that it has kernels for.
  Graph fused(std::span<const int> seeds = {}, const kernels::Table* table = nullptr) const;

 private:
  // Every pair once.
  Graph with_pairs_fused(std::span<const int> seeds, const kernels::Table* table) const;
  int add_value(const Value& value);
  int find(Source source, int slot) const;
  std::deque<Value> values_;
  std::deque<Node> nodes_;
  std::vector<int> outputs_;
  int inputs_ = 0;
};

}  // namespace lockstep
