// Reverse-mode differentiation, for graphs and for tapes.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/graph/graph.h"

namespace lockstep {

// What is differentiated: nodes in order of execution, whose inputs and outputs are numbered
// values.
class Differentiated {
 public:
  virtual ~Differentiated() = default;
  virtual size_t nodes() const = 0;
  virtual std::span<const int> inputs(size_t node) const = 0;
  virtual std::span<const int> outputs(size_t node) const = 0;
  // Whether all derivatives of a node are 0.
  virtual bool has_zero_slope(size_t node) const = 0;
  // Derivatives with respect to the inputs of a node, from those with respect to its outputs (-1: a
  // zero). `wanted`: by value. Results of -1 are zeros. Further results, if any, replace the
  // derivatives with respect to the outputs.
  virtual std::vector<int> gradient(size_t node, const std::vector<int>& diff_outputs,
                                    const std::vector<bool>& wanted) = 0;
  // a + b, where `a` was contributed first, to the derivative with respect to an input of a node.
  virtual int sum(int a, int b, size_t node) = 0;
};

// Marks the values that have derivatives with respect to marked ones.
void mark_dependents(const Differentiated& of, std::vector<bool>& marked);

// Visits the nodes from the last to the first. `diffs`: the derivative with respect to each value,
// as known from outside; -1: none. Adds all contributions to values that are `wanted`, in the order
// of nodes and inputs.
void sweep_backward(Differentiated& of, std::vector<int>& diffs, const std::vector<bool>& wanted);

// A derivative that is known from outside: a value of the graph's `diff` for its `value`.
struct DerivativeSeed {
  int value, diff;
};

// Adds the ops that compute the derivatives of a scalar with respect to some values, and returns
// the derivative with respect to each of them; -1: zero. Nodes get the names of those that they
// differentiate.
std::vector<int> add_gradients(Graph& graph, std::span<const DerivativeSeed> seeds,
                               std::span<const int> with_respect_to);

// Adds the nodes of `graph` that `results` need to another builder and returns the results there.
// -1 gives an undefined value. `inputs`: the values of the graph's inputs there; the graph has no
// parameters and states.
std::vector<Value> replayed(const Graph& graph, std::span<const Value> inputs,
                            std::span<const int> results);

// a + b of two derivatives, in the layout of `a`.
OpPtr make_accumulation();
bool is_accumulation(const Op& op);

}  // namespace lockstep
