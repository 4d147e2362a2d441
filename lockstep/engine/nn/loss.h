// Losses as networks are trained with: one value per observation.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine/plan/graph.h"

namespace lockstep {

// "cross_entropy" (probabilities and class labels; fused with a softmax in front of it),
// "mean_squared_error" (a prediction and a target of the same size).
const std::vector<std::string>& loss_names();

struct LossValues {
  int target;  // the graph's input for targets: n labels (i32), or n x ... (f32)
  int loss;    // n values
};

// Adds the loss of `prediction` to the graph. Throws InvalidArgument for an unknown loss, with the
// nearest name, and for a prediction that does not fit it.
LossValues add_loss(Graph& graph, const std::string& loss, int prediction);

}  // namespace lockstep
