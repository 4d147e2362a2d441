#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/shapes/reshaping.h"

namespace lockstep::ops {
namespace {

class Reshape final : public Reshaping {
 public:
  explicit Reshape(Shape observation) : observation_(std::move(observation)) {}
  std::string_view type() const override { return "reshape"; }

 private:
  Shape result(const Shape& x) const override {
    if (x.rank() < 1) {
      throw InvalidArgument("[reshape] expected an input of n x ..., received " + x.to_string());
    }
    const int64_t given = x.without_batch().elements(), wanted = observation_.elements();
    if (given != wanted) {
      throw InvalidArgument("[reshape] " + observation_.to_string() + " has " +
                            std::to_string(wanted) + " elements, but an observation has " +
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

template <Operand T>
T reshape(const T& x, const Shape& observation) {
  return applied(make_reshape(observation), {x});
}
LOCKSTEP_INSTANTIATE_1(reshape, const Shape&)

}  // namespace lockstep::ops
