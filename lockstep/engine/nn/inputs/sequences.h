// Sequences in graphs: n x steps x ..., with the lengths of all observations.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// The number of steps that a plan is made for, given the longest of its sequences: `longest` or at
// most a fourth more. So few plans serve all lengths (four for each power of two), and results
// depend on valid steps alone, not on how a user has padded them. At least 1.
inline int64_t steps_capacity(int64_t longest) {
  if (longest <= 1) return 1;
  const auto octave = static_cast<int>(std::bit_width(static_cast<uint64_t>(longest - 1)));
  const int64_t grain = octave > 3 ? int64_t{1} << (octave - 3) : 1;
  return (longest + grain - 1) / grain * grain;
}

// Steps where their number does not matter.
inline constexpr int64_t kStepsForQuestions = 8;

// The steps of each of a network's inputs, as plans of these inputs need them (LoweringOptions);
// empty if none is a sequence.
inline std::vector<int64_t> steps_of(std::span<const Tensor> inputs, bool sequences) {
  std::vector<int64_t> steps;
  if (!sequences) return steps;
  for (const Tensor& input : inputs) {
    steps.push_back(input.shape().rank() > 1 ? input.shape()[1] : 0);
  }
  return steps;
}

// `first`, then `rest` from dimension `from` on.
inline Shape shape_of_dims(std::vector<int64_t> first, const Dims& rest, int from) {
  first.insert(first.end(), rest.begin() + from, rest.end());
  return Shape(first);
}

// The shape of a sequence whose steps are observations, n * steps x ..., and back.
inline Shape steps_together(const Shape& x) { return shape_of_dims({x[0] * x[1]}, x.dims(), 2); }
inline Shape steps_apart(const Shape& x, int64_t n) {
  return shape_of_dims({n, x[0] / n}, x.dims(), 1);
}

// The value of this shape that `value` is a reshaped form of, or -1.
inline int reshaped_from(const Graph& graph, int value, const Shape& shape) {
  const Graph::Value& known = graph.values()[static_cast<size_t>(value)];
  if (known.source != Graph::Source::computed) return -1;
  const Graph::Node& node = graph.nodes()[static_cast<size_t>(known.slot)];
  if (node.op->type() != "reshape" || !(graph.shape(node.inputs[0]) == shape)) return -1;
  return node.inputs[0];
}

}  // namespace lockstep
