#include "lockstep/engine/ops/reshape.h"

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

class Reshape final : public Op {
 public:
  explicit Reshape(Shape observation) : observation_(std::move(observation)) {}
  std::string_view type() const override { return "reshape"; }
  bool takes_bf16(size_t input) const override { return input == 0; }
  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, 1, 1);
    return {result(in[0])};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_floats(*this, in);
    return table.reshape({in[0], result(in[0].shape)});
  }

 private:
  Shape result(const Shape& x) const {
    if (x.rank() < 1) {
      throw InvalidArgument("[reshape] an input of n x ... wanted, received " + x.to_string());
    }
    const int64_t given = x.without_batch().elements(), wanted = observation_.elements();
    if (given != wanted) {
      throw InvalidArgument("[reshape] " + observation_.to_string() + " has " +
                            std::to_string(wanted) + " elements, an observation has " +
                            std::to_string(given) + " (input " + x.to_string() + ")");
    }
    std::vector<int64_t> dims = observation_.dims();
    dims.insert(dims.begin(), x[0]);
    return Shape(dims);
  }

  Shape observation_;
};

}  // namespace

OpPtr make_reshape(Shape observation) { return std::make_shared<Reshape>(std::move(observation)); }

Tensor reshape(const Tensor& x, const Shape& observation) {
  return apply_op(make_reshape(observation), {x})[0];
}

}  // namespace lockstep::ops
