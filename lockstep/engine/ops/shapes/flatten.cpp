#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/shapes/reshaping.h"

namespace lockstep::ops {
namespace {

class Flatten final : public Reshaping {
 public:
  std::string_view type() const override { return "flatten"; }

 private:
  Shape result(const Shape& x) const override {
    if (x.rank() < 1) {
      throw InvalidArgument("[flatten] expected an input of n x ..., received " + x.to_string());
    }
    return Shape{x[0], x.without_batch().elements()};
  }
};

}  // namespace

OpPtr make_flatten() { return std::make_shared<Flatten>(); }

Tensor flatten(const Tensor& x) { return apply_op(make_flatten(), {x})[0]; }

}  // namespace lockstep::ops
