#include "lockstep/engine/kernels/elementwise/cast.h"

#include "lockstep/engine/kernels/interface/element_types.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class Cast final : public Op {
 public:
  explicit Cast(DType to) : to_(to) {}
  std::string_view type() const override { return "astype"; }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 1, 1);
    for (const DType type : {in[0].dtype, to_}) kernels::with_type(this->type(), type, [](auto) {});
    return {{in[0].shape, to_, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::CastProblem{in[0].plain(), to_});
  }
  bool has_zero_slope() const override { return to_ != DType::f32; }
  // Whole numbers have no derivative.
  std::vector<Value> gradient(const AppliedOp& of) const override {
    const bool floats = to_ == DType::f32 && of.inputs[0].dtype() == DType::f32;
    return {floats ? of.diff_outputs[0] : Value()};
  }

 private:
  DType to_;
};

}  // namespace

OpPtr make_astype(DType to) { return std::make_shared<Cast>(to); }

template <Operand T>
T astype(const T& x, DType to) {
  return applied(make_astype(to), {x});
}

LOCKSTEP_INSTANTIATE_1(astype, DType)

}  // namespace lockstep::ops
