#include "lockstep/engine/autograd/tape.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/autograd/op.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/tensor/reshape.h"

namespace lockstep {
namespace {

thread_local Tape* innermost = nullptr;

struct Node {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::shared_ptr<BackwardFunction> backward;  // shared by all tapes that record the op
  bool linked = false;
};

// Runs a pass. On a device other than the CPU, adds it to the stream of eager work.
void run(Device device, const kernels::Pass& pass, const std::vector<Tensor>& reads,
         const std::vector<Tensor>& writes, const StepInfo& step = {}) {
  std::vector<void*> r, w;
  for (const auto& t : reads) r.push_back(t.raw());
  for (const auto& t : writes) w.push_back(t.raw());
  const Memory scratch = allocate(pass.scratch_bytes, device);
  const ArithmeticMode mode;
  if (device.is_cpu()) {
    pass.bind({r, w, scratch.data()})(step);
    return;
  }
  DeviceMemory& there = memory_of(device);
  void* const stream = eager_stream_of(device);
  const Memory device_step = allocate(sizeof step, device);
  there.copy_from_host(device_step.data(), &step, sizeof step, stream);
  there.activate();
  pass.bind({r, w, scratch.data(), stream, device_step.as<StepInfo>()})(step);
}

// Requires both tensors to be row-major.
Tensor sum_of(const Tensor& a, const Tensor& b) {
  Tensor sum(a.spec(), a.device());
  run(a.device(), kernels::table_for(a.device()).accumulate(a.spec()), {a, b}, {sum});
  return sum;
}

[[noreturn]] void refuse_mixed(const std::string& where, Device a, Device b) {
  throw InvalidArgument("[" + where + "] tensors on " + to_string(a) + " and on " + to_string(b) +
                            " cannot be combined",
                        "move one of them: tensor.to(device)");
}

// Returns the device of all inputs. Throws InvalidArgument if they are on several devices.
Device device_of(const Op& op, const std::vector<Tensor>& inputs) {
  const Device device = inputs.empty() ? Device{} : inputs.front().device();
  for (const auto& t : inputs) {
    if (t.device() != device) refuse_mixed(std::string(op.type()), device, t.device());
  }
  return device;
}

}  // namespace

Tensor convert(const Tensor& tensor, const TensorSpec& spec) {
  if (tensor.spec() == spec) return tensor;
  if (tensor.shape() == spec.shape) {
    const Device device = tensor.device();
    if (!device.is_cpu()) memory_of(device).activate();
    Tensor copy(spec, device);
    run(device, kernels::table_for(device).reorder(tensor.spec(), spec), {tensor}, {copy});
    return copy;
  }
  return convert(reshaped_unrecorded(convert(tensor, tensor.spec().plain()), spec.shape), spec);
}

struct Tape::State {
  std::set<uint64_t> tracked;
  std::set<uint64_t> derived;  // gradients of tracked tensors, and values computed from them
  std::deque<Node> nodes;      // may grow while a backward function runs

  bool is_derived(std::span<const Tensor> tensors) const {
    if (derived.empty()) return false;
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& t) { return t.defined() && derived.count(t.id()); });
  }
  void record(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
              std::shared_ptr<BackwardFunction> backward, Outputs kind) {
    for (const auto& t : outputs) tracked.insert(t.id());
    nodes.push_back({inputs, outputs, std::move(backward), kind == Outputs::linked});
  }
};

namespace {

void record_reshape(const Tensor& from, const Tensor& to) {
  BackwardFunction backward;
  if (Tape::any_tracks(std::span(&from, 1))) {
    backward = [shape = from.shape()](const std::vector<Tensor>& diffs, const std::vector<bool>&) {
      return std::vector<Tensor>{diffs[0].defined() ? reshaped_unrecorded(diffs[0], shape)
                                                    : Tensor()};
    };
  }
  Tape::record_everywhere({from}, {to}, std::move(backward));
}

}  // namespace

Tape::Tape() : state_(std::make_unique<State>()), outer_(innermost) {
  set_reshape_recorder(record_reshape);
  innermost = this;
}

Tape::~Tape() { innermost = outer_; }

Tape* Tape::current() { return innermost; }

void Tape::watch(const Tensor& tensor) { state_->tracked.insert(tensor.id()); }

void Tape::watch(std::span<const Tensor> tensors) {
  for (const auto& t : tensors) watch(t);
}

bool Tape::tracks(std::span<const Tensor> inputs) const {
  for (const auto& t : inputs) {
    if (t.defined() && state_->tracked.count(t.id())) return true;
  }
  return false;
}

bool Tape::reads(const Tensor& tensor) const {
  for (const auto& node : state_->nodes) {
    for (const auto& t : node.inputs) {
      if (t.defined() && t.id() == tensor.id()) return true;
    }
  }
  return false;
}

bool Tape::any_tracks(std::span<const Tensor> inputs) {
  for (const Tape* tape = innermost; tape; tape = tape->outer_) {
    if (tape->tracks(inputs)) return true;
  }
  return false;
}

bool Tape::from_gradients(const Tensor& tensor) const {
  return state_->derived.count(tensor.id()) > 0;
}

void Tape::record(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                  BackwardFunction backward, Outputs kind) {
  state_->record(inputs, outputs, std::make_shared<BackwardFunction>(std::move(backward)), kind);
}

void Tape::record_everywhere(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                             BackwardFunction backward, Outputs kind) {
  std::shared_ptr<BackwardFunction> shared;
  for (Tape* tape = innermost; tape; tape = tape->outer_) {
    State& state = *tape->state_;
    if (state.is_derived(inputs)) {
      for (const auto& t : outputs) state.derived.insert(t.id());
    }
    if (!backward && !shared) continue;
    if (!tape->tracks(inputs)) continue;
    if (!shared) shared = std::make_shared<BackwardFunction>(std::move(backward));
    state.record(inputs, outputs, shared, kind);
  }
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
    if (t.dtype() == DType::u8 || t.dtype() == DType::i32) {
      throw InvalidArgument(
          name + " (" + t.spec().to_string() + ") has integer elements, which have no gradients",
          "convert it to f32 before use");
    }
    if (t.id() == scalar.id() || state_->tracked.count(t.id())) continue;
    throw InvalidArgument(name + " (" + t.spec().to_string() + ") is not on this tape",
                          "call tape.watch() for it before use");
  }
  if (state_->derived.count(scalar.id())) {
    throw Unsupported(
        "[tape] the scalar was computed from gradients; derivatives of gradients are not "
        "implemented",
        "use gradient.clone() if the gradient is a constant, or write the derivative as "
        "ops");
  }
  if (!with_respect_to.empty() && !state_->tracked.count(scalar.id())) {
    const bool itself = std::all_of(with_respect_to.begin(), with_respect_to.end(),
                                    [&](const Tensor& t) { return t.id() == scalar.id(); });
    if (itself) return;
    throw InvalidArgument(
        "[tape] the scalar was not computed from tensors that this tape watches",
        "call tape.watch() first, then compute the scalar by ops on the same thread; predict() and "
        "methods of Tensor are not recorded");
  }
}

std::vector<Tensor> Tape::gradient(const Tensor& scalar, std::span<const Tensor> with_respect_to) {
  check_asked(scalar, with_respect_to);
  std::map<uint64_t, Tensor> diffs;
  diffs[scalar.id()] = Tensor::full(scalar.shape(), 1.0f, scalar.device());
  std::set<uint64_t> asked;
  for (const auto& t : with_respect_to) asked.insert(t.id());
  // Computes only values on a path from the requested tensors to the scalar.
  std::set<uint64_t> useful = asked;
  const auto any_of = [](const std::set<uint64_t>& ids, const std::vector<Tensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& t) { return t.defined() && ids.count(t.id()); });
  };
  for (const auto& node : state_->nodes) {
    if (any_of(useful, node.inputs) || (node.linked && any_of(asked, node.outputs))) {
      for (const auto& o : node.outputs) useful.insert(o.id());
    }
  }
  for (size_t n = state_->nodes.size(); n-- > 0;) {
    const Node* const node = &state_->nodes[n];
    std::vector<Tensor> outputs;
    bool reached = false;
    for (const auto& t : node->outputs) {
      const auto found = diffs.find(t.id());
      outputs.push_back(found == diffs.end() ? Tensor() : found->second);
      reached |= outputs.back().defined();
    }
    if (!reached) continue;
    std::vector<bool> wanted;
    bool any = false;
    for (const auto& t : node->inputs) {
      wanted.push_back(t.defined() && useful.count(t.id()));
      any |= wanted.back();
    }
    for (size_t k = 0; node->linked && k < node->outputs.size(); ++k) {
      wanted.push_back(asked.count(node->outputs[k].id()) > 0);
      any |= wanted.back();
    }
    if (!any) continue;
    const std::vector<Tensor> results = (*node->backward)(outputs, wanted);
    const size_t inputs = node->inputs.size();
    for (size_t k = 0; k + inputs < results.size() && node->linked; ++k) {
      if (results[inputs + k].defined()) diffs[node->outputs[k].id()] = results[inputs + k];
    }
    for (size_t i = 0; i < std::min(inputs, results.size()); ++i) {
      if (!wanted[i] || !results[i].defined()) continue;
      const Tensor& of = node->inputs[i];
      const Tensor diff = convert(reshaped_unrecorded(results[i], of.shape()), of.spec().plain());
      if (diff.device() != node->inputs[i].device()) {
        refuse_mixed("tape", node->inputs[i].device(), diff.device());
      }
      Tensor& sum = diffs[node->inputs[i].id()];
      sum = sum.defined() ? sum_of(sum, diff) : diff;
    }
  }
  std::vector<Tensor> gradients;
  for (const auto& t : with_respect_to) {
    const auto found = diffs.find(t.id());
    if (found == diffs.end()) {
      gradients.push_back(Tensor::zeros(t.shape(), DType::f32, t.device()));
      continue;
    }
    gradients.push_back(found->second);
    // Marks the gradient in every tape of this thread, so that a tape can report an attempt to
    // differentiate it.
    for (Tape* tape = innermost; tape; tape = tape->outer_) {
      State& state = *tape->state_;
      if (state.tracked.count(scalar.id()) || state.derived.count(scalar.id())) {
        state.derived.insert(found->second.id());
      }
    }
  }
  return gradients;
}

std::vector<Tensor> apply_op(const OpPtr& op, const std::vector<Tensor>& inputs,
                             const StepInfo& step) {
  std::vector<Shape> shapes;
  std::vector<TensorSpec> specs;
  for (const auto& t : inputs) {
    if (!t.defined()) {
      throw InvalidArgument("[" + std::string(op->type()) + "] an input is an undefined tensor");
    }
    shapes.push_back(t.shape());
    specs.push_back(t.spec());
  }
  op->infer(shapes);
  const Device device = device_of(*op, inputs);
  if (!device.is_cpu()) memory_of(device).activate();
  const kernels::Table& table = kernels::table_for(device);
  check_precision(table, specs);
  auto kernel = std::make_shared<kernels::Kernel>(op->compile(table, specs));

  using Kind = kernels::Operand::Kind;
  std::vector<Tensor> reads, writes, outputs;
  auto kept = std::make_shared<Tensor>();  // the workspace
  for (const auto& o : kernel->forward.reads) {
    reads.push_back(convert(inputs[static_cast<size_t>(o.index)], o.spec));
  }
  for (const auto& o : kernel->forward.writes) {
    Tensor t(o.spec, device);
    writes.push_back(t);
    if (o.kind == Kind::workspace) {
      *kept = t;
    } else {
      outputs.resize(std::max(outputs.size(), static_cast<size_t>(o.index) + 1));
      outputs[static_cast<size_t>(o.index)] = t;
    }
  }
  run(device, kernel->forward, reads, writes, step);

  if (!Tape::any_tracks(inputs)) {
    Tape::record_everywhere(inputs, outputs, nullptr);
    return outputs;
  }
  Tape::record_everywhere(
      inputs, outputs,
      [op, kernel, device, inputs, outputs, kept, step](const std::vector<Tensor>& diff_outputs,
                                                        const std::vector<bool>& wanted) {
        std::vector<Tensor> diffs(inputs.size());
        for (const auto& pass : kernel->backward) {
          bool any = false;
          for (const auto& o : pass.writes) any |= wanted[static_cast<size_t>(o.index)];
          if (!any) continue;
          std::vector<Tensor> r, w;
          for (const auto& o : pass.reads) {
            const auto i = static_cast<size_t>(o.index);
            switch (o.kind) {
              case Kind::input:
                r.push_back(convert(inputs[i], o.spec));
                break;
              case Kind::output:
                r.push_back(convert(outputs[i], o.spec));
                break;
              case Kind::workspace:
                r.push_back(*kept);
                break;
              default:
                r.push_back(convert(diff_outputs[i].defined()
                                        ? diff_outputs[i]
                                        : Tensor::zeros(outputs[i].shape(), DType::f32, device),
                                    o.spec));
            }
          }
          for (const auto& o : pass.writes) w.push_back(Tensor(o.spec, device));
          run(device, pass, r, w, step);
          for (size_t k = 0; k < w.size(); ++k) {
            diffs[static_cast<size_t>(pass.writes[k].index)] = convert(w[k], w[k].spec().plain());
          }
        }
        for (size_t i = 0; i < wanted.size(); ++i) {
          if (!wanted[i] || diffs[i].defined()) continue;
          throw Unsupported("[" + std::string(op->type()) +
                            "] has no gradient with respect to its " + "input " +
                            std::to_string(i + 1));
        }
        return diffs;
      });
  return outputs;
}

}  // namespace lockstep
