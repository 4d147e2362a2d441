// Derivatives of the gradients that plans of a network compute.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/engine/plan/graph_function.h"

namespace lockstep {

// A network as a function of its inputs and the parameters and states that it uses. Thread-safe.
class NetworkFunction {
 public:
  // The results are the graph's outputs.
  NetworkFunction(const Graph& graph, DType precision, Device device, bool fuses_pairs = true);

  const GraphFunction& function() const { return *function_; }

  // What a plan has computed the gradients from, and what it has computed. The lists of gradients
  // are by input, then by parameter; parameters may be missing there.
  struct Computed {
    std::vector<Tensor> inputs, parameters, states = {};  // all of the network
    std::vector<Tensor> output_gradients;                 // undefined: 0
    std::vector<bool> needed;
    RandomContext step;
    std::vector<Tensor> rows = {};  // what the graph's further inputs have read
    std::function<void()> check =
        nullptr;  // throws if the arguments have changed since; null: they do not
  };
  // Records the gradients on tapes that are to differentiate them again. If there is one, gradients
  // on which the outputs do not depend become undefined, which means 0.
  void record(const Computed& of, std::vector<Tensor>& gradients) const;

 private:
  std::shared_ptr<const GraphFunction> function_;
  std::vector<int> parameters_, states_;  // slots
};

}  // namespace lockstep
