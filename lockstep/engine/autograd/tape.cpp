#include "lockstep/engine/autograd/tape.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/engine/autograd/eager_ops.h"
#include "lockstep/engine/autograd/id_map.h"
#include "lockstep/engine/graph/differentiate.h"
#include "lockstep/engine/graph/kernel_gradient.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/tensor/reshape.h"

namespace lockstep {

namespace {

thread_local Tape* innermost = nullptr;

}  // namespace

// An op, or a function that ran outside of the tape.
struct Tape::Node {
  std::vector<Tensor> inputs, outputs;
  OpPtr op;  // null: a function
  std::shared_ptr<const AppliedKernel> kernel;
  RandomContext step;
  BackwardFunction backward;
  bool linked = false;
};

struct Tape::State {
  IdMap tracked;
  // Gradients that were given without a record, and values computed from them.
  IdMap derived;
  std::vector<NodePointer> nodes;  // may grow while gradients are computed
  bool paused = false;             // records nothing

  bool is_derived(std::span<const Tensor> tensors) const {
    if (derived.empty()) return false;
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& t) { return t.defined() && derived.contains(t.id()); });
  }
  void record(NodePointer node) {
    for (const auto& t : node->outputs) tracked.add(t.id());
    nodes.push_back(std::move(node));
  }
};

namespace {

void record_reshape(const Tensor& from, const Tensor& to) {
  BackwardFunction backward;
  if (Tape::any_tracks(std::span(&from, 1))) {
    backward = [shape = from.shape()](const std::vector<Tensor>& diffs, const std::vector<bool>&) {
      return std::vector<Tensor>{diffs[0].defined() ? diffs[0].reshaped(shape) : Tensor()};
    };
  }
  Tape::record_everywhere({from}, {to}, std::move(backward));
}

// The tensor as row-major elements of `shape`. Recorded.
Tensor plain(const Tensor& tensor, const Shape& shape) {
  Tensor result = tensor;
  if (!tensor.spec().row_major() || tensor.dtype() != DType::f32) {
    result = convert(tensor, {tensor.shape(), DType::f32, nullptr});
    BackwardFunction backward = [](const std::vector<Tensor>& diffs, const std::vector<bool>&) {
      return diffs;
    };
    if (!Tape::any_tracks(std::span(&tensor, 1))) backward = nullptr;
    Tape::record_everywhere({tensor}, {result}, std::move(backward));
  }
  return result.shape() == shape ? result : result.reshaped(shape);
}

// Values are tensors, and ops run at once.
class TensorBuilder final : public ValueBuilder {
 public:
  TensorSpec spec_of(int value) const override { return tensor(value).spec().plain(); }
  const Tensor& tensor(int value) const { return *tensors_[static_cast<size_t>(value)]; }
  size_t size() const { return tensors_.size(); }

  // All undefined tensors have one number.
  int number(const Tensor& tensor) {
    const int count = static_cast<int>(tensors_.size()), found = number_in_place(tensor);
    if (found == count) tensors_.back() = &own_.emplace_back(tensor);
    return found;
  }
  // The same for a tensor that stays where it is.
  int number_in_place(const Tensor& tensor) {
    const auto next = static_cast<int>(tensors_.size());
    bool is_new = false;
    int number = undefined_;
    if (tensor.defined()) {
      std::tie(number, is_new) = numbers_.add(tensor.id(), next);
    } else if (undefined_ < 0) {
      number = undefined_ = next;
      is_new = true;
    }
    if (is_new) tensors_.push_back(&tensor);
    return number;
  }
  // Makes a kernel known by the value of its first output.
  void remember(int output, std::shared_ptr<const AppliedKernel> kernel) {
    const auto at = static_cast<size_t>(output);
    if (kernels_.size() <= at) kernels_.resize(at + 1);
    kernels_[at] = std::move(kernel);
  }
  // For ops that are applied from now on.
  void set_step(const RandomContext& step) { step_ = step; }

  std::vector<int> add(OpPtr op, std::vector<int> inputs) override {
    std::vector<Tensor> in;
    in.reserve(inputs.size());
    for (const int v : inputs) in.push_back(tensor(v));
    EagerResults made;
    if (const auto* const gradient = dynamic_cast<const KernelGradient*>(op.get())) {
      const auto output = static_cast<size_t>(inputs[gradient->inputs()]);
      if (output >= kernels_.size() || !kernels_[output]) {
        throw InternalError("[tape] " + std::string(op->type()) + ": a gradient without its op");
      }
      made.outputs = run_gradient(*gradient, *kernels_[output], in);
    } else {
      made = run_op(op, in, step_);
    }
    Tape::record_everywhere(in, made.outputs, op, made.kernel, step_);
    std::vector<int> outputs;
    for (const Tensor& t : made.outputs) outputs.push_back(number(t));
    if (made.kernel) remember(outputs.front(), std::move(made.kernel));
    return outputs;
  }

 private:
  std::deque<Tensor> own_;  // addresses stay valid
  std::vector<const Tensor*> tensors_;
  IdMap numbers_;
  int undefined_ = -1;
  std::vector<std::shared_ptr<const AppliedKernel>> kernels_;  // by value; null: none
  RandomContext step_;
};

}  // namespace

// The nodes of a tape, as they are when gradients are requested.
class Tape::Nodes final : public Differentiated {
 public:
  Nodes(Tape& tape, TensorBuilder& builder) : tape_(tape), builder_(builder) {
    const auto number = [&](const std::vector<Tensor>& tensors) {
      for (const Tensor& t : tensors) values_.push_back(builder.number_in_place(t));
      ends_.push_back(values_.size());
    };
    builder.number(Tensor());
    ends_.push_back(0);
    for (const NodePointer& node : tape.state_->nodes) {
      number(node->inputs);
      number(node->outputs);
      if (node->kernel) builder.remember(outputs(nodes() - 1).front(), node->kernel);
    }
  }
  size_t nodes() const override { return ends_.size() / 2; }
  std::span<const int> inputs(size_t i) const override { return values(2 * i); }
  std::span<const int> outputs(size_t i) const override { return values(2 * i + 1); }
  bool has_zero_slope(size_t i) const override {
    return node(i).op && node(i).op->has_zero_slope();
  }

  // `asked`: by value.
  void set_asked(std::vector<bool> asked) { asked_ = std::move(asked); }
  bool is_linked(size_t i) const { return node(i).linked; }

  std::vector<int> gradient(size_t i, const std::vector<int>& diff_outputs,
                            const std::vector<bool>& wanted) override {
    const Node& node = this->node(i);
    std::vector<bool> needed;
    for (const int v : inputs(i)) needed.push_back(wanted[static_cast<size_t>(v)]);
    if (node.linked) {
      for (const int v : outputs(i)) needed.push_back(asked_[static_cast<size_t>(v)]);
    }
    if (std::count(needed.begin(), needed.end(), true) == 0) return {};
    return node.op ? gradient_of_op(i, diff_outputs, needed)
                   : gradient_of_function(i, diff_outputs, needed);
  }

  int sum(int a, int b, size_t) override {
    const Tensor &first = builder_.tensor(a), &second = builder_.tensor(b);
    if (first.device() != second.device()) refuse_mixed("tape", first.device(), second.device());
    return builder_.add(make_accumulation(), {a, b}).front();
  }

 private:
  const Node& node(size_t i) const { return *tape_.state_->nodes[i]; }
  std::span<const int> values(size_t list) const {
    return std::span(values_).subspan(ends_[list], ends_[list + 1] - ends_[list]);
  }

  // A derivative with respect to input k of node i, row-major.
  int contribution(size_t i, size_t k, const Tensor& diff) {
    const Tensor& of = node(i).inputs[k];
    if (diff.device() != of.device()) refuse_mixed("tape", of.device(), diff.device());
    return builder_.number(plain(diff, of.shape()));
  }

  std::vector<int> gradient_of_op(size_t i, const std::vector<int>& diff_outputs,
                                  std::vector<bool> needed) {
    const auto value = [&](int v) { return v < 0 ? Value() : Value(&builder_, v); };
    AppliedOp applied;
    for (const int v : inputs(i)) applied.inputs.push_back(value(v));
    for (const int v : outputs(i)) applied.outputs.push_back(value(v));
    for (const int v : diff_outputs) applied.diff_outputs.push_back(value(v));
    applied.wanted = std::move(needed);
    builder_.set_step(node(i).step);
    const OpPtr op = node(i).op;
    const std::vector<Value> results = op->gradient(applied);
    std::vector<int> numbers;
    for (size_t k = 0; k < results.size(); ++k) {
      numbers.push_back(results[k].defined() && applied.wanted[k]
                            ? contribution(i, k, builder_.tensor(results[k].number()))
                            : -1);
    }
    return numbers;
  }

  std::vector<int> gradient_of_function(size_t i, const std::vector<int>& diff_outputs,
                                        const std::vector<bool>& needed) {
    std::vector<Tensor> diffs;
    for (const int v : diff_outputs) diffs.push_back(v < 0 ? Tensor() : builder_.tensor(v));
    const std::vector<Tensor> results = node(i).backward(diffs, needed);
    std::vector<Tensor> from = node(i).inputs;
    from.insert(from.end(), diffs.begin(), diffs.end());
    std::vector<int> numbers;
    for (size_t k = 0; k < results.size(); ++k) {
      if (!results[k].defined() || !needed[k]) {
        numbers.push_back(-1);
        continue;
      }
      note_unrecorded(from, results[k]);
      numbers.push_back(k < inputs(i).size()
                            ? contribution(i, k, results[k])
                            : builder_.number(plain(results[k], results[k].shape())));
    }
    return numbers;
  }

  // Marks a result that a tape must not take for a constant, because the function has not recorded
  // how it follows from tensors on that tape.
  static void note_unrecorded(const std::vector<Tensor>& from, const Tensor& result) {
    for (Tape* tape = innermost; tape; tape = tape->outer_) {
      State& state = *tape->state_;
      if (state.paused || state.tracked.contains(result.id())) continue;
      if (tape->tracks(from) || state.is_derived(from)) state.derived.add(result.id());
    }
  }

  Tape& tape_;
  TensorBuilder& builder_;
  // The numbers of the inputs of each node, then of its outputs, and where each list begins.
  std::vector<int> values_;
  std::vector<size_t> ends_;
  std::vector<bool> asked_;
};

Tape::Tape() : state_(std::make_unique<State>()), outer_(innermost) {
  set_reshape_recorder(record_reshape);
  innermost = this;
}

Tape::~Tape() { innermost = outer_; }

Tape* Tape::current() { return innermost; }

void Tape::watch(const Tensor& tensor) { state_->tracked.add(tensor.id()); }

void Tape::watch(std::span<const Tensor> tensors) {
  for (const auto& t : tensors) watch(t);
}

bool Tape::tracks(std::span<const Tensor> inputs) const {
  if (state_->paused) return false;
  for (const auto& t : inputs) {
    if (t.defined() && state_->tracked.contains(t.id())) return true;
  }
  return false;
}

bool Tape::reads(const Tensor& tensor) const {
  for (const auto& node : state_->nodes) {
    for (const auto& t : node->inputs) {
      if (t.defined() && t.id() == tensor.id()) return true;
    }
  }
  return false;
}

bool Tape::any_records() {
  for (const Tape* tape = innermost; tape; tape = tape->outer_) {
    if (!tape->state_->paused) return true;
  }
  return false;
}

bool Tape::any_tracks(std::span<const Tensor> inputs) {
  for (Tape* tape = innermost; tape; tape = tape->outer_) {
    if (tape->tracks(inputs)) return true;
  }
  return false;
}

bool Tape::from_gradients(const Tensor& tensor) const {
  return state_->derived.contains(tensor.id());
}

void Tape::record(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                  BackwardFunction backward, Outputs kind) {
  state_->record(std::make_shared<const Node>(Node{std::move(inputs),
                                                   std::move(outputs),
                                                   nullptr,
                                                   nullptr,
                                                   {},
                                                   std::move(backward),
                                                   kind == Outputs::linked}));
}

void Tape::record_node(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                       const std::function<NodePointer()>& make_node) {
  NodePointer node;
  for (Tape* tape = innermost; tape; tape = tape->outer_) {
    State& state = *tape->state_;
    if (state.paused) continue;
    if (state.is_derived(inputs)) {
      for (const auto& t : outputs) state.derived.add(t.id());
    }
    if (!make_node || !tape->tracks(inputs)) continue;
    if (!node) node = make_node();
    state.record(node);
  }
}

void Tape::record_everywhere(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                             BackwardFunction backward, Outputs kind) {
  if (!innermost) return;
  if (!backward) return record_node(inputs, outputs, nullptr);
  const auto make_node = [&] {
    return std::make_shared<const Node>(
        Node{inputs, outputs, nullptr, nullptr, {}, std::move(backward), kind == Outputs::linked});
  };
  record_node(inputs, outputs, std::cref(make_node));
}

void Tape::record_everywhere(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                             const OpPtr& op, const std::shared_ptr<const AppliedKernel>& kernel,
                             const RandomContext& step) {
  if (!innermost) return;
  const auto make_node = [&] {
    return std::make_shared<const Node>(Node{inputs, outputs, op, kernel, step, nullptr, false});
  };
  record_node(inputs, outputs, std::cref(make_node));
}

void Tape::check_asked(const Tensor& scalar, std::span<const Tensor> with_respect_to) const {
  if (!scalar.defined() || scalar.shape().elements() != 1 || scalar.dtype() != DType::f32) {
    throw InvalidArgument("[tape] gradients need a scalar of f32, received " +
                          (scalar.defined() ? scalar.spec().to_string() : "an undefined tensor"));
  }
  for (size_t i = 0; i < with_respect_to.size(); ++i) {
    const Tensor& t = with_respect_to[i];
    const std::string name = "[tape] tensor " + std::to_string(i + 1);
    if (!t.defined())
      throw InvalidArgument(name + ", for which a gradient is requested, is undefined");
    if (t.dtype() != DType::f32 && !is_narrow(t.dtype())) {
      throw InvalidArgument(
          name + " (" + t.spec().to_string() + ") has integer elements, which have no gradients",
          "convert it to f32 before use");
    }
    if (t.id() == scalar.id() || state_->tracked.contains(t.id())) continue;
    throw InvalidArgument(name + " (" + t.spec().to_string() + ") is not on this tape",
                          "call tape.watch() for it before use");
  }
  if (state_->derived.contains(scalar.id())) {
    throw Unsupported(
        "[tape] the scalar was computed from gradients that this tape has not recorded",
        "record them: tape.gradient(scalar, tensors, {.create_graph = true}); or use "
        "gradient.clone() if the gradient is a constant");
  }
  if (!with_respect_to.empty() && !state_->tracked.contains(scalar.id())) {
    const bool itself = std::all_of(with_respect_to.begin(), with_respect_to.end(),
                                    [&](const Tensor& t) { return t.id() == scalar.id(); });
    if (itself) return;
    throw InvalidArgument(
        "[tape] the scalar was not computed from tensors that this tape watches",
        "call tape.watch() first, then compute the scalar by ops on the same thread; predict() and "
        "methods of Tensor are not recorded");
  }
}

std::vector<Tensor> Tape::gradient(const Tensor& scalar, std::span<const Tensor> with_respect_to,
                                   const GradientOptions& options) {
  check_asked(scalar, with_respect_to);
  struct Pause {
    bool& paused;
    const bool before = paused;
    ~Pause() { paused = before; }
  } const pause{state_->paused};
  state_->paused = state_->paused || !options.create_graph;

  TensorBuilder builder;
  Nodes nodes(*this, builder);
  const int from = builder.number(scalar);
  std::vector<int> asked;
  for (const auto& t : with_respect_to) asked.push_back(builder.number(t));
  std::vector<bool> wanted(builder.size(), false);
  for (const int v : asked) wanted[static_cast<size_t>(v)] = true;
  nodes.set_asked(wanted);
  // Computes only values on a path from the requested tensors to the scalar. Outputs of one node
  // may depend on each other.
  for (size_t i = 0; i < nodes.nodes(); ++i) {
    const auto outputs = nodes.outputs(i);
    if (!nodes.is_linked(i)) continue;
    if (std::any_of(outputs.begin(), outputs.end(),
                    [&](int v) { return wanted[static_cast<size_t>(v)]; })) {
      for (const int v : outputs) wanted[static_cast<size_t>(v)] = true;
    }
  }
  mark_dependents(nodes, wanted);
  std::vector<int> diffs(builder.size(), -1);
  diffs[static_cast<size_t>(from)] =
      builder.number(Tensor::full(scalar.shape(), 1.0f, scalar.device()));
  sweep_backward(nodes, diffs, wanted);

  std::vector<Tensor> gradients;
  std::set<const void*> given;
  for (size_t i = 0; i < asked.size(); ++i) {
    const Tensor& t = with_respect_to[i];
    const int diff = diffs[static_cast<size_t>(asked[i])];
    if (diff < 0) {
      gradients.push_back(Tensor::zeros(t.shape(), DType::f32, t.device()));
      continue;
    }
    Tensor gradient = builder.tensor(diff);
    if (!options.create_graph) {
      // The caller may write into a gradient, so no two share their elements.
      if (!given.insert(gradient.raw()).second || state_->tracked.contains(gradient.id())) {
        gradient = gradient.clone();
      }
      state_->derived.add(gradient.id());
    }
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

std::vector<Tensor> apply_op(const OpPtr& op, const std::vector<Tensor>& inputs,
                             const RandomContext& step) {
  EagerResults made = run_op(op, inputs, step);
  Tape::record_everywhere(inputs, made.outputs, op, made.kernel, step);
  return std::move(made.outputs);
}

}  // namespace lockstep
