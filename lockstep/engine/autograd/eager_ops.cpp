#include "lockstep/engine/autograd/eager_ops.h"

#include <algorithm>

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

// Runs a pass. On a device other than the CPU, adds it to the stream of eager work.
void run(Device device, const kernels::Pass& pass, const std::vector<Tensor>& reads,
         const std::vector<Tensor>& writes, const StepInfo& step = {}) {
  std::vector<void*> r, w;
  for (const auto& t : reads) r.push_back(t.raw());
  for (const auto& t : writes) w.push_back(t.raw());
  const Memory scratch = pass.scratch_bytes > 0 ? allocate(pass.scratch_bytes, device) : Memory();
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
    run(device, kernels::reorder(kernels::table_for(device), tensor.spec(), spec), {tensor},
        {copy});
    return copy;
  }
  return convert(reshaped_unrecorded(convert(tensor, tensor.spec().plain()), spec.shape), spec);
}

EagerResults run_op(const OpPtr& op, const std::vector<Tensor>& inputs, const StepInfo& step) {
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
  auto made =
      std::make_shared<AppliedKernel>(AppliedKernel{op->compile(table, specs), Tensor(), step});
  std::vector<Tensor> reads, writes, outputs;
  for (const auto& o : made->kernel.forward.reads) {
    reads.push_back(convert(inputs[static_cast<size_t>(o.index)], o.spec));
  }
  for (const auto& o : made->kernel.forward.writes) {
    Tensor t(o.spec, device);
    writes.push_back(t);
    if (o.kind == kernels::Operand::Kind::workspace) {
      made->workspace = t;
    } else {
      outputs.resize(std::max(outputs.size(), static_cast<size_t>(o.index) + 1));
      outputs[static_cast<size_t>(o.index)] = t;
    }
  }
  run(device, made->kernel.forward, reads, writes, step);
  return {std::move(outputs), std::move(made)};
}

std::vector<Tensor> run_gradient(const KernelGradient& gradient, const AppliedKernel& applied,
                                 const std::vector<Tensor>& inputs) {
  using Kind = kernels::Operand::Kind;
  const Device device = inputs.front().device();
  std::vector<Tensor> diffs(gradient.inputs());
  for (const auto& pass : applied.kernel.backward) {
    const bool any = std::any_of(pass.writes.begin(), pass.writes.end(), [&](const auto& o) {
      return gradient.diff_input(static_cast<size_t>(o.index)) >= 0;
    });
    if (!any) continue;
    std::vector<Tensor> r, w;
    for (const auto& o : pass.reads) {
      const auto i = static_cast<size_t>(o.index);
      if (o.kind == Kind::workspace) {
        r.push_back(applied.workspace);
      } else if (o.kind == Kind::input) {
        r.push_back(convert(inputs[i], o.spec));
      } else if (o.kind == Kind::output) {
        r.push_back(convert(inputs[gradient.inputs() + i], o.spec));
      } else {
        const int at = gradient.diff_output(i);
        r.push_back(convert(
            at >= 0 ? inputs[static_cast<size_t>(at)]
                    : Tensor::zeros(inputs[gradient.inputs() + i].shape(), DType::f32, device),
            o.spec));
      }
    }
    for (const auto& o : pass.writes) w.push_back(Tensor(o.spec, device));
    run(device, pass, r, w, applied.step);
    for (size_t k = 0; k < w.size(); ++k) {
      diffs[static_cast<size_t>(pass.writes[k].index)] = convert(w[k], w[k].spec().plain());
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
    results.push_back(diffs[i]);
  }
  return results;
}

}  // namespace lockstep
