#include "lockstep/engine/nn/loss.h"

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

const std::vector<std::string>& loss_names() {
  static const std::vector<std::string> names{"cross_entropy", "mean_squared_error"};
  return names;
}

LossValues add_loss(Graph& graph, const std::string& loss, int prediction) {
  const Shape shape = graph.shape(prediction);
  if (loss == "cross_entropy") {
    const int target = graph.add_input(Shape{shape[0]}, DType::i32);
    return {target, graph.add(ops::make_cross_entropy(), {prediction, target}, "loss")[0]};
  }
  if (loss == "mean_squared_error") {
    const int target = graph.add_input(shape, DType::f32);
    return {target, graph.add(ops::make_mean_squared_error(), {prediction, target}, "loss")[0]};
  }
  throw InvalidArgument("[network] unknown loss `" + loss + "`", suggest(loss, loss_names()));
}

}  // namespace lockstep
