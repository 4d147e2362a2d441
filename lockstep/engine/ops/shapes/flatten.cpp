#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
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

template <Operand T>
T flatten(const T& x) {
  return applied(make_flatten(), {x});
}
LOCKSTEP_INSTANTIATE_1(flatten)

}  // namespace lockstep::ops
