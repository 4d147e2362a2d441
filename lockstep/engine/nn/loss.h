// Losses for training networks: one value per observation.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine/graph/graph.h"

namespace lockstep {

// Names of the losses: "cross_entropy" (probabilities and class labels; fused with a softmax before
// it) and "mean_squared_error" (a prediction and a target of the same size).
const std::vector<std::string>& loss_names();

struct LossValues {
  int target;  // graph input for targets: n labels (i32), or n x ... (f32)
  int loss;    // n values
};

// Adds the loss of `prediction` to the graph. Throws InvalidArgument for an unknown loss, with the
// most similar name as a hint, and for a prediction that does not fit the loss.
LossValues add_loss(Graph& graph, const std::string& loss, int prediction);

}  // namespace lockstep
