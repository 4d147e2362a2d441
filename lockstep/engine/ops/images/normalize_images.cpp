#include "lockstep/engine/kernels/images/normalize_images.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/windows/window.h"

namespace lockstep::ops {
namespace {

class NormalizeImages final : public Op {
 public:
  std::string_view type() const override { return "normalize_images"; }
  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 3, 3);
    const Shape& x = in[0].shape;
    if (x.rank() < 2 || x.elements() == 0) {
      throw InvalidArgument(
          "[normalize_images] expected an input of n x c or n x c x space, received " +
          x.to_string());
    }
    for (size_t i = 1; i < 3; ++i) {
      if (!(in[i].shape == Shape{x[1]})) {
        throw InvalidArgument("[normalize_images] offset and factor need " + std::to_string(x[1]) +
                              " elements, received " + in[i].shape.to_string());
      }
    }
    if (in[0].dtype != DType::u8) check_floats(*this, in.first(1));
    check_floats(*this, in.subspan(1));
    return {{x, DType::f32, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::NormalizeImagesProblem{in[0]});
  }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return elementwise_tangent(*this, inputs, changes);
  }
};

}  // namespace

OpPtr make_normalize_images() { return std::make_shared<NormalizeImages>(); }

template <Operand T>
T normalize_images(const T& x, const Same<T>& offset, const Same<T>& factor) {
  return applied(make_normalize_images(), {x, offset, factor});
}
LOCKSTEP_INSTANTIATE_3(normalize_images)

}  // namespace lockstep::ops
