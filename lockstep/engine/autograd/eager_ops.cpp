#include "lockstep/engine/autograd/eager_ops.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/tensor/reshape.h"

namespace lockstep {
namespace {

// What an eager call passes to a kernel. Most have few operands, for which it allocates nothing.
class Operands {
 public:
  void add(const Tensor& tensor) {
    if (count_ < few_.size()) {
      few_[count_] = tensor.raw();
    } else {
      if (many_.empty()) many_.assign(few_.begin(), few_.end());
      many_.push_back(tensor.raw());
    }
    ++count_;
  }
  // The tensor in the layout `spec`; a conversion lives as long as this.
  void add_converted(const Tensor& tensor, const TensorSpec& spec) {
    if (tensor.spec() == spec) return add(tensor);
    add(converted_.emplace_back(convert(tensor, spec)));
  }
  void add_zeros(const TensorSpec& spec, Device device) {
    add(converted_.emplace_back(convert(Tensor::zeros(spec.shape, DType::f32, device), spec)));
  }
  std::span<void* const> addresses() const {
    return {many_.empty() ? few_.data() : many_.data(), count_};
  }

 private:
  size_t count_ = 0;
  std::array<void*, 8> few_;
  std::vector<void*> many_;  // all, if they are more
  std::vector<Tensor> converted_;
};

// Runs a pass. On a device other than the CPU, adds it to the stream of eager work.
void run(Device device, const kernels::Pass& pass, const Operands& reads, const Operands& writes,
         const RandomContext& step = {}) {
  const std::span<void*const> r = reads.addresses(), w = writes.addresses();
  const Memory scratch = pass.scratch_bytes > 0 ? allocate(pass.scratch_bytes, device) : Memory();
  const ArithmeticMode mode;
  if (device.is_cpu()) return pass.bind.run({r, w, scratch.data()}, step);
  DeviceMemory& there = memory_of(device);
  void* const stream = eager_stream_of(device);
  const Memory device_step = allocate(sizeof step, device);
  there.copy_from_host(device_step.data(), &step, sizeof step, stream);
  there.activate();
  pass.bind({r, w, scratch.data(), stream, device_step.as<RandomContext>()})(step);
}

using KernelPtr = std::shared_ptr<const kernels::Kernel>;

// The CPU's kernels of ops that are applied again and again to the same shapes (kept_op.h). Of each
// thread, so that none waits for another one.
class KeptKernels {
 public:
  static KeptKernels& of_thread() {
    thread_local KeptKernels own;
    return own;
  }

  // Null: there is none.
  KernelPtr find(const kernels::Table& table, const Op& op,
                 const std::vector<Tensor>& inputs) const {
    const auto [first, end] = entries_.equal_range(hash_of(op, inputs));
    for (auto at = first; at != end; ++at) {
      const Entry& entry = at->second;
      const bool same = entry.op.get() == &op && entry.table == &table &&
                        std::equal(inputs.begin(), inputs.end(), entry.inputs.begin(),
                                   entry.inputs.end(), [](const Tensor& t, const TensorSpec& spec) {
                                     return t.defined() && t.device().is_cpu() && t.spec() == spec;
                                   });
      if (same) return entry.kernel;
    }
    return nullptr;
  }
  void add(const kernels::Table& table, const OpPtr& op, const std::vector<Tensor>& inputs,
           std::vector<TensorSpec> specs, KernelPtr kernel) {
    if (entries_.size() == kMost) entries_.clear();
    entries_.emplace(hash_of(*op, inputs), Entry{&table, op, std::move(specs), std::move(kernel)});
  }

 private:
  struct Entry {
    const kernels::Table* table;
    OpPtr op;
    std::vector<TensorSpec> inputs;
    KernelPtr kernel;
  };
  static constexpr size_t kMost = 1024;

  static size_t hash_of(const Op& op, const std::vector<Tensor>& inputs) {
    size_t hash = reinterpret_cast<size_t>(&op) >> 4;
    const auto add = [&](size_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15; };
    for (const Tensor& t : inputs) {
      add(static_cast<size_t>(t.dtype()));
      for (const int64_t dim : t.shape().dims()) add(static_cast<size_t>(dim));
    }
    return hash ^ hash >> 32;
  }

  std::unordered_multimap<size_t, Entry> entries_;
};

// Returns the device of all inputs. Throws InvalidArgument if they are on several devices.
Device device_of(const Op& op, const std::vector<Tensor>& inputs) {
  const Device device = inputs.empty() ? Device{} : inputs.front().device();
  for (const auto& t : inputs) {
    if (t.device() != device) refuse_mixed(std::string(op.type()), device, t.device());
  }
  return device;
}

}  // namespace

void refuse_mixed(const std::string& where, Device a, Device b) {
  throw InvalidArgument("[" + where + "] tensors on " + to_string(a) + " and on " + to_string(b) +
                            " cannot be combined",
                        "move one of them: tensor.to(device)");
}

Tensor convert(const Tensor& tensor, const TensorSpec& spec) {
  if (tensor.spec() == spec) return tensor;
  if (tensor.shape() == spec.shape) {
    const Device device = tensor.device();
    if (!device.is_cpu()) memory_of(device).activate();
    Tensor copy(spec, device);
    Operands from, to;
    from.add(tensor);
    to.add(copy);
    run(device, kernels::reorder(kernels::table_for(device), tensor.spec(), spec), from, to);
    return copy;
  }
  return convert(reshaped_unrecorded(convert(tensor, tensor.spec().plain()), spec.shape), spec);
}

namespace {

// The kernel of an op for these inputs, which are on `device` but for errors.
KernelPtr kernel_of(const OpPtr& op, const std::vector<Tensor>& inputs) {
  const bool on_cpu = inputs.empty() || inputs.front().device().is_cpu();
  KeptKernels* const kept = op->is_kept() && on_cpu ? &KeptKernels::of_thread() : nullptr;
  if (kept) {
    if (KernelPtr found = kept->find(kernels::table_for({}), *op, inputs)) return found;
  }
  std::vector<TensorSpec> specs;
  for (const auto& t : inputs) {
    if (!t.defined()) {
      throw InvalidArgument("[" + std::string(op->type()) + "] an input is an undefined tensor");
    }
    specs.push_back(t.spec());
  }
  op->infer(specs);
  const Device device = device_of(*op, inputs);
  if (!device.is_cpu()) memory_of(device).activate();
  const kernels::Table& table = kernels::table_for(device);
  check_precision(table, specs);
  auto made = std::make_shared<const kernels::Kernel>(op->compile(table, specs));
  if (kept) kept->add(table, op, inputs, std::move(specs), made);
  return made;
}

}  // namespace

EagerResults run_op(const OpPtr& op, const std::vector<Tensor>& inputs, const RandomContext& step) {
  KernelPtr kernel = kernel_of(op, inputs);
  const Device device = inputs.empty() ? Device{} : inputs.front().device();
  const kernels::Pass& pass = kernel->forward;
  Operands reads, writes;
  Tensor kept;
  std::vector<Tensor> outputs;
  for (const auto& o : pass.reads) {
    reads.add_converted(inputs[static_cast<size_t>(o.index)], o.spec);
  }
  for (const auto& o : pass.writes) {
    Tensor t(o.spec, device);
    writes.add(t);
    if (o.kind == kernels::Operand::Kind::workspace) {
      kept = std::move(t);
    } else {
      outputs.resize(std::max(outputs.size(), static_cast<size_t>(o.index) + 1));
      outputs[static_cast<size_t>(o.index)] = std::move(t);
    }
  }
  run(device, pass, reads, writes, step);
  return {std::move(outputs), std::make_shared<const AppliedKernel>(
                                  AppliedKernel{std::move(kernel), std::move(kept), step})};
}

std::vector<Tensor> run_gradient(const KernelGradient& gradient, const AppliedKernel& applied,
                                 const std::vector<Tensor>& inputs) {
  using Kind = kernels::Operand::Kind;
  const Device device = inputs.front().device();
  std::vector<Tensor> diffs(gradient.inputs());
  for (const auto& pass : applied.kernel->backward) {
    const bool any = std::any_of(pass.writes.begin(), pass.writes.end(), [&](const auto& o) {
      return gradient.diff_input(static_cast<size_t>(o.index)) >= 0;
    });
    if (!any) continue;
    Operands reads, writes;
    for (const auto& o : pass.reads) {
      const auto i = static_cast<size_t>(o.index);
      if (o.kind == Kind::workspace) {
        reads.add(applied.workspace);
      } else if (o.kind == Kind::input) {
        reads.add_converted(inputs[i], o.spec);
      } else if (o.kind == Kind::output) {
        reads.add_converted(inputs[gradient.inputs() + i], o.spec);
      } else if (const int at = gradient.diff_output(i); at >= 0) {
        reads.add_converted(inputs[static_cast<size_t>(at)], o.spec);
      } else {
        reads.add_zeros(o.spec, device);
      }
    }
    std::vector<Tensor> results;
    for (const auto& o : pass.writes) writes.add(results.emplace_back(o.spec, device));
    run(device, pass, reads, writes, applied.step);
    for (size_t k = 0; k < results.size(); ++k) {
      const Tensor& result = results[k];
      diffs[static_cast<size_t>(pass.writes[k].index)] = convert(result, result.spec().plain());
    }
  }
  std::vector<Tensor> results;
  for (size_t i = 0; i < diffs.size(); ++i) {
    if (gradient.diff_input(i) < 0) continue;
    if (diffs[i].defined() && !(diffs[i].shape() == inputs[i].shape())) {
      diffs[i] = reshaped_unrecorded(diffs[i], inputs[i].shape());
    }
    if (!diffs[i].defined()) {
      throw Unsupported("[" + std::string(gradient.type()) +
                        "] has no gradient with respect to its input " + std::to_string(i + 1));
    }
    results.push_back(std::move(diffs[i]));
  }
  return results;
}

}  // namespace lockstep
