#include "lockstep/engine/ops/elementwise/with_bias.h"

#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {

std::vector<Value> product_tangent(const OpPtr& product, std::span<const Value> inputs,
                                   std::span<const Value> changes) {
  Value sum;
  const auto add_term = [&](const Value& term) { sum = sum.defined() ? sum + term : term; };
  if (changes[0].defined()) add_term(applied(product, {changes[0], inputs[1]}));
  if (changes[1].defined()) add_term(applied(product, {inputs[0], changes[1]}));
  if (changes.size() > 2 && changes[2].defined()) {
    const Shape factors[] = {inputs[0].shape(), inputs[1].shape()};
    const Shape y = infer_of_floats(*product, factors)[0];
    const Value bias = by_channel(changes[2], y);
    add_term(sum.defined() ? bias : broadcast_to(bias, y));
  }
  return {sum};
}

}  // namespace lockstep::ops
