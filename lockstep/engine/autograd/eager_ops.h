// Ops on tensors, computed at once, without tapes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/graph/kernel_gradient.h"
#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// A kernel that has computed the outputs of an op, with what it keeps for its backward passes.
struct AppliedKernel {
  std::shared_ptr<const kernels::Kernel> kernel;
  Tensor workspace;
  RandomContext step;
};

struct EagerResults {
  std::vector<Tensor> outputs;  // in the layouts that the kernel chose
  std::shared_ptr<const AppliedKernel> kernel;
};

// Applies an op by its kernel, on the device that holds the tensors. Throws InvalidArgument if they
// are undefined, on several devices, or do not fit.
EagerResults run_op(const OpPtr& op, const std::vector<Tensor>& inputs, const RandomContext& step);

// Runs the backward passes of a kernel. `inputs`: as for KernelGradient. Results are row-major.
// Throws Unsupported if no pass computes a wanted derivative.
std::vector<Tensor> run_gradient(const KernelGradient& gradient, const AppliedKernel& applied,
                                 const std::vector<Tensor>& inputs);

// Throws InvalidArgument "[where] tensors on ... and on ... cannot be combined".
[[noreturn]] void refuse_mixed(const std::string& where, Device a, Device b);

}  // namespace lockstep
