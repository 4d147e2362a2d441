#include "lockstep/engine/nn/runner/recorded_run.h"

#include <algorithm>

#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/device/eager_stream.h"

namespace lockstep {
namespace {

// Copies a tensor to row-major memory of its device.
void copy_to(void* to, const Tensor& from) {
  const Tensor plain = convert(from, from.spec().plain());
  eager_copy(plain.device(), to, plain.raw(), plain.bytes());
}

Tensor copy_of(const float* from, const Shape& shape, Device device) {
  Tensor tensor(shape, DType::f32, device);
  eager_copy(device, tensor.raw(), from, tensor.bytes());
  return tensor;
}

}  // namespace

Tensor output_of(const PlanRun& run, int output, const Shape& shape) {
  return copy_of(run.output(output), shape, run.plan().device());
}

void RecordedRun::forward() {
  for (size_t i = 0; i < of_.inputs.size(); ++i) {
    if (!of_.run->reads_input(static_cast<int>(i))) continue;
    copy_to(of_.run->input(static_cast<int>(i)), of_.inputs[i]);
  }
  const std::vector<Tensor> values = rows();
  for (size_t i = 0; i < values.size(); ++i) {
    copy_to(of_.run->input(of_.rows[i].input), values[i]);
  }
  of_.run->forward(of_.step, begin());
  of_.run->join();
  overwritten_ = false;
}

std::vector<Tensor> RecordedRun::rows() const {
  std::vector<Tensor> all;
  for (const RowsRead& read : of_.rows) all.push_back(read.values.to(of_.run->plan().device()));
  return all;
}

std::vector<Tensor> RecordedRun::outputs() const {
  std::vector<Tensor> all;
  for (const Shape& shape : of_.outputs) {
    all.push_back(output_of(*of_.run, static_cast<int>(all.size()), shape));
  }
  return all;
}

std::vector<Tensor> RecordedRun::backward(const std::vector<Tensor>& diffs,
                                          const std::vector<bool>& wanted) {
  PlanRun& run = *of_.run;
  const Device device = run.plan().device();
  if (overwritten_) forward();
  for (size_t k = 0; k < diffs.size(); ++k) {
    float* const to = run.output_gradient(static_cast<int>(k));
    if (diffs[k].defined()) {
      copy_to(to, diffs[k]);
    } else {
      eager_zero(device, to, static_cast<size_t>(of_.outputs[k].elements()) * sizeof(float));
    }
  }
  overwritten_ = true;
  const auto any = [&](size_t first, size_t end) {
    const auto at = [&](size_t i) { return wanted.begin() + static_cast<ptrdiff_t>(i); };
    return std::find(at(first), at(end), true) != at(end);
  };
  const size_t inputs = of_.inputs.size(), tracked = wanted.size() - of_.outputs.size();
  const bool parameters = any(inputs, tracked);
  run.backward(of_.step, begin(),
               {.parameters = parameters,
                .zeros = parameters && of_.zeros,
                .values = any(0, inputs) || any(tracked, wanted.size())});
  run.join();
  std::vector<Tensor> results(tracked + of_.outputs.size());
  const auto take = [&](size_t i, const float* from, const Shape& shape) {
    if (from && wanted[i]) results[i] = copy_of(from, shape, device);
  };
  for (size_t i = 0; i < of_.inputs.size(); ++i) {
    take(i, run.input_gradient(static_cast<int>(i)), of_.inputs[i].shape());
  }
  for (size_t k = 0; k < of_.outputs.size(); ++k) {
    take(tracked + k, run.total_output_gradient(static_cast<int>(k)), of_.outputs[k]);
  }
  return results;
}

}  // namespace lockstep
