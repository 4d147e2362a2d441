// Lowers a layer into a temporary graph to infer what it requests and the shapes of its results.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/nn/layer.h"

namespace lockstep {

// Derived classes provide the shapes of parameters and states. Not thread-safe.
class ShapeInference : public LoweringLayer {
 public:
  ShapeInference(bool training, std::string name, std::span<const Shape> inputs)
      : training_(training), name_(std::move(name)) {
    for (const Shape& shape : inputs) values_.push_back(graph_.add_input(shape, DType::f32));
  }
  // The values of the inputs.
  const std::vector<int>& values() const { return values_; }

  bool training() const final { return training_; }
  const std::string& name() const final { return name_; }
  TensorSpec spec_of(int value) const final { return graph_.spec(value); }
  int parameter(int k) final { return graph_.add_parameter(k, parameter_shape(k)); }
  int state(int k) final { return graph_.add_state(k, state_shape(k)); }
  // Throws the op's error about its inputs without the layer's name, which the caller adds.
  std::vector<int> add(OpPtr op, std::vector<int> inputs) final {
    std::vector<TensorSpec> specs;
    for (const int v : inputs) specs.push_back(graph_.spec(v));
    op->infer(specs);
    return graph_.add(std::move(op), std::move(inputs), name_);
  }
  void follow(int, int, int, int, double) final {}
  void follow(StateRule, int, int, double) final {}

 protected:
  Graph& graph() { return graph_; }

 private:
  virtual Shape parameter_shape(int k) const = 0;
  virtual Shape state_shape(int k) const = 0;

  bool training_;
  std::string name_;
  Graph graph_;
  std::vector<int> values_;
};

}  // namespace lockstep
