#include "lockstep/engine/graph/kernel_gradient.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/differentiate.h"

namespace lockstep {
namespace {

// The number of entry `i` among those that are true; -1: it is false.
int number_of(const std::vector<bool>& marked, size_t i) {
  if (!marked[i]) return -1;
  return static_cast<int>(
      std::count(marked.begin(), marked.begin() + static_cast<ptrdiff_t>(i), true));
}

}  // namespace

std::vector<Value> Op::gradient(const AppliedOp& applied) const {
  std::vector<Value> inputs = applied.inputs;
  inputs.insert(inputs.end(), applied.outputs.begin(), applied.outputs.end());
  std::vector<bool> reached;
  for (const Value& diff : applied.diff_outputs) {
    reached.push_back(diff.defined());
    if (diff.defined()) inputs.push_back(diff);
  }
  std::vector<Value> results(applied.inputs.size());
  if (std::count(applied.wanted.begin(), applied.wanted.end(), true) == 0) return results;
  const auto op =
      std::make_shared<KernelGradient>(shared_from_this(), applied.wanted, std::move(reached));
  const std::vector<Value> diffs = apply_all(op, inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    if (applied.wanted[i]) results[i] = diffs[static_cast<size_t>(op->diff_input(i))];
  }
  return results;
}

KernelGradient::KernelGradient(OpPtr of, std::vector<bool> wanted, std::vector<bool> reached)
    : of_(std::move(of)), wanted_(std::move(wanted)), reached_(std::move(reached)) {}

int KernelGradient::diff_output(size_t k) const {
  const int number = number_of(reached_, k);
  return number < 0 ? -1 : static_cast<int>(inputs() + outputs()) + number;
}

int KernelGradient::diff_input(size_t i) const { return number_of(wanted_, i); }

std::vector<Shape> KernelGradient::infer(std::span<const Shape> in) const {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < inputs(); ++i) {
    if (wanted_[i]) shapes.push_back(in[i]);
  }
  return shapes;
}

kernels::Kernel KernelGradient::compile(const kernels::Table&, std::span<const TensorSpec>) const {
  throw InternalError("[" + std::string(type()) +
                      "] a gradient was compiled without the op that it belongs to");
}

// The derivatives dx = J(x)^T dy give <ddx, dx> = <dy, J(x) ddx>. So the derivative with respect to
// dy is the tangent J(x) ddx, and that with respect to x is the gradient of <dy, J(x) ddx>.
std::vector<Value> KernelGradient::gradient(const AppliedOp& applied) const {
  Graph graph;
  GraphBuilder builder(graph, std::string(type()));
  std::vector<Value> outside;  // by input of the graph
  const auto input = [&](const Value& value) {
    outside.push_back(value);
    return Value(&builder, graph.add_input(value.shape(), DType::f32));
  };
  std::vector<Value> x, tangents(inputs());
  for (size_t i = 0; i < inputs(); ++i) x.push_back(input(applied.inputs[i]));
  for (size_t i = 0; i < inputs(); ++i) {
    if (!wanted_[i]) continue;
    const Value& diff = applied.diff_outputs[static_cast<size_t>(diff_input(i))];
    if (diff.defined()) tangents[i] = input(diff);
  }
  std::vector<Value> dy(outputs());
  for (size_t k = 0; k < outputs(); ++k) {
    if (reached_[k]) dy[k] = input(applied.inputs[static_cast<size_t>(diff_output(k))]);
  }

  // J(x) ddx: by the op's rule, or as the derivative of J(x)^T dy, which is linear in dy.
  std::vector<Value> moved = of_->tangent(x, tangents);
  if (moved.empty()) {
    const std::vector<Value> y = of_->decomposed(x);
    if (y.empty()) {
      throw Unsupported("[" + std::string(type()) + "] has no second derivative");
    }
    std::vector<DerivativeSeed> seeds;
    std::vector<Value> probe(outputs());
    for (size_t k = 0; k < outputs(); ++k) {
      if (!reached_[k] || !y[k].defined()) continue;
      probe[k] = dy[k];
      seeds.push_back({y[k].number(), probe[k].number()});
    }
    std::vector<bool> wanted(graph.values().size(), false);
    for (size_t i = 0; i < inputs(); ++i) {
      if (wanted_[i]) wanted[static_cast<size_t>(x[i].number())] = true;
    }
    mark_dependents(graph, wanted);
    const std::vector<int> dx = add_gradients(graph, seeds, wanted);
    seeds.clear();
    for (size_t i = 0; i < inputs(); ++i) {
      const int diff = dx[static_cast<size_t>(x[i].number())];
      if (tangents[i].defined() && diff >= 0) seeds.push_back({diff, tangents[i].number()});
    }
    wanted.assign(graph.values().size(), false);
    for (const Value& of : probe) {
      if (of.defined()) wanted[static_cast<size_t>(of.number())] = true;
    }
    mark_dependents(graph, wanted);
    const std::vector<int> along = add_gradients(graph, seeds, wanted);
    moved.resize(outputs());
    for (size_t k = 0; k < outputs(); ++k) {
      const int diff = probe[k].defined() ? along[static_cast<size_t>(probe[k].number())] : -1;
      if (diff >= 0) moved[k] = Value(&builder, diff);
    }
  }

  std::vector<DerivativeSeed> seeds;
  std::vector<bool> wanted(graph.values().size(), false);
  for (size_t k = 0; k < outputs() && !of_->has_constant_slope(); ++k) {
    if (dy[k].defined() && moved[k].defined()) seeds.push_back({moved[k].number(), dy[k].number()});
  }
  for (size_t i = 0; i < inputs(); ++i) {
    if (applied.wanted[i]) wanted[static_cast<size_t>(x[i].number())] = true;
  }
  mark_dependents(graph, wanted);
  const std::vector<int> diffs = add_gradients(graph, seeds, wanted);

  std::vector<int> results(applied.inputs.size(), -1);
  for (size_t i = 0; i < inputs(); ++i) {
    if (applied.wanted[i]) results[i] = diffs[static_cast<size_t>(x[i].number())];
  }
  for (size_t k = 0; k < outputs(); ++k) {
    const int at = diff_output(k);
    if (at >= 0 && moved[k].defined()) results[static_cast<size_t>(at)] = moved[k].number();
  }
  return replayed(graph, outside, results);
}

}  // namespace lockstep
