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

std::vector<TensorSpec> KernelGradient::infer(std::span<const TensorSpec> in) const {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < inputs(); ++i) {
    if (wanted_[i]) specs.push_back({in[i].shape, DType::f32, nullptr});
  }
  return specs;
}

kernels::Kernel KernelGradient::compile(const kernels::Table&, std::span<const TensorSpec>) const {
  throw InternalError("[" + std::string(type()) +
                      "] a gradient was compiled without the op that it belongs to");
}

namespace {

std::vector<int> numbers_of(std::span<const Value> values) {
  std::vector<int> numbers;
  for (const Value& value : values) numbers.push_back(value.number());
  return numbers;
}

// Pairs of values that are both defined.
std::vector<DerivativeSeed> seeds_of(std::span<const Value> values, std::span<const Value> diffs) {
  std::vector<DerivativeSeed> seeds;
  for (size_t k = 0; k < values.size(); ++k) {
    if (!values[k].defined() || !diffs[k].defined()) continue;
    seeds.push_back({values[k].number(), diffs[k].number()});
  }
  return seeds;
}

std::vector<Value> values_of(ValueBuilder* builder, std::span<const int> numbers) {
  std::vector<Value> values;
  for (const int number : numbers) values.push_back(number < 0 ? Value() : Value(builder, number));
  return values;
}

// J(x) ddx of an op that is a composition of others: the derivative of <ddx, J(x)^T dy> with
// respect to dy, in which it is linear. Undefined changes and elements of dy are zeros.
std::vector<Value> composed_tangent(const Op& op, Graph& graph, ValueBuilder* builder,
                                    std::span<const Value> x, std::span<const Value> changes,
                                    std::span<const Value> dy) {
  const std::vector<Value> y = op.decomposed(x);
  if (y.empty()) throw Unsupported("[" + std::string(op.type()) + "] has no second derivative");
  const std::vector<Value> dx =
      values_of(builder, add_gradients(graph, seeds_of(y, dy), numbers_of(x)));
  std::vector<Value> reached;
  for (const Value& diff : dy) {
    if (diff.defined()) reached.push_back(diff);
  }
  const std::vector<Value> along =
      values_of(builder, add_gradients(graph, seeds_of(dx, changes), numbers_of(reached)));
  std::vector<Value> moved(dy.size());
  for (size_t k = 0, at = 0; k < dy.size(); ++k) {
    if (dy[k].defined()) moved[k] = along[at++];
  }
  return moved;
}

}  // namespace

// The derivatives dx = J(x)^T dy give <ddx, dx> = <dy, J(x) ddx>. So the derivative with respect to
// dy is the tangent J(x) ddx, and that with respect to x is the gradient of <dy, J(x) ddx>.
std::vector<Value> KernelGradient::gradient(const AppliedOp& applied) const {
  Graph graph;
  GraphBuilder builder(graph, std::string(type()));
  std::vector<Value> outside;  // by input of the graph
  const auto input = [&](const Value& value) {
    outside.push_back(value);
    return Value(&builder, graph.add_input(value.shape(), value.dtype()));
  };
  std::vector<Value> x, changes(inputs()), dy(outputs());
  for (size_t i = 0; i < inputs(); ++i) x.push_back(input(applied.inputs[i]));
  for (size_t i = 0; i < inputs(); ++i) {
    if (!wanted_[i]) continue;
    const Value& change = applied.diff_outputs[static_cast<size_t>(diff_input(i))];
    if (change.defined()) changes[i] = input(change);
  }
  for (size_t k = 0; k < outputs(); ++k) {
    if (reached_[k]) dy[k] = input(applied.inputs[static_cast<size_t>(diff_output(k))]);
  }

  std::vector<Value> moved = of_->tangent(x, changes);
  if (moved.empty()) moved = composed_tangent(*of_, graph, &builder, x, changes, dy);

  std::vector<Value> wanted;
  for (size_t i = 0; i < inputs() && !of_->has_constant_slope(); ++i) {
    if (applied.wanted[i]) wanted.push_back(x[i]);
  }
  const std::vector<int> diffs = add_gradients(graph, seeds_of(moved, dy), numbers_of(wanted));

  std::vector<int> results(applied.inputs.size(), -1);
  for (size_t i = 0, at = 0; i < inputs() && at < diffs.size(); ++i) {
    if (applied.wanted[i]) results[i] = diffs[at++];
  }
  for (size_t k = 0; k < outputs(); ++k) {
    if (dy[k].defined()) results[static_cast<size_t>(diff_output(k))] = moved[k].number();
  }
  return replayed(graph, outside, results);
}

}  // namespace lockstep
