// The backward passes of an op's kernel, as an op.
#pragma once

#include <vector>

#include "lockstep/engine/graph/op.h"

namespace lockstep {

// Computes the derivatives with respect to inputs of an op by the backward passes of its kernel.
// Inputs: those of the op, its outputs, and the derivatives with respect to those outputs that are
// reached. Outputs: a derivative for each wanted input. The passes belong to the kernel that
// computed the outputs and share its layouts and workspace, so plans and tapes find that kernel by
// the outputs; the op alone has no kernel. Its own derivatives are those of Op::tangent(), or of
// Op::decomposed().
class KernelGradient final : public Op {
 public:
  KernelGradient(OpPtr of, std::vector<bool> wanted, std::vector<bool> reached);

  const OpPtr& of() const { return of_; }
  size_t inputs() const { return wanted_.size(); }
  size_t outputs() const { return reached_.size(); }
  // The number of the input with the derivative with respect to output `k`, and of the output with
  // the derivative with respect to input `i`; -1: it is not reached, not wanted.
  int diff_output(size_t k) const;
  int diff_input(size_t i) const;

  std::string_view type() const override { return of_->type(); }
  std::vector<TensorSpec> infer(std::span<const TensorSpec> inputs) const override;
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> inputs) const override;
  std::vector<Value> gradient(const AppliedOp& applied) const override;

 private:
  OpPtr of_;
  std::vector<bool> wanted_, reached_;  // by input and by output of the op
};

}  // namespace lockstep
