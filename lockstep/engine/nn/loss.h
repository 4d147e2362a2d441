// Losses for training networks: one value per observation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/ops/labels.h"

namespace lockstep {

// Names of the losses: "cross_entropy" (probabilities and class labels; fused with a softmax before
// it) and "mean_squared_error" (a prediction and a target of the same size).
const std::vector<std::string>& loss_names();

// Throws InvalidArgument unless `loss` is one of these names or an expression, such as
// "huber(output, target, delta=0.1) + 0.01 * mean(abs(output))": of `output`, the network's output,
// and `target`, with the functions of lockstep::ops. The names of losses stand for their values:
// "cross_entropy + dice_loss". For an unknown name the most similar one is a
// hint; errors of expressions show the position.
void check_loss(const std::string& loss);

// Whether a loss is an expression, not one of the names.
bool is_expression(const std::string& loss);

// Whether the targets of a loss are class labels (i32). In an expression: whether a function takes
// `target` as its labels, as in cross_entropy(output, target); otherwise targets are numbers.
bool takes_labels(const std::string& loss);

struct LossValues {
  // Graph input for targets: n labels (i32), or n x ... (f32). Of a sequence: n x steps labels, or
  // n x steps x .... Of a prediction n x classes x space: n x space labels.
  int target;
  // n values; of a sequence the sum over its valid steps, of labels by pixel that over the pixels
  // whose label is not kIgnoredLabel. One number for an image is that of each of these pixels.
  int loss;
};

// Adds the loss of `prediction` to the graph, of a sequence that of each step. Throws
// InvalidArgument like check_loss(), and for a prediction that does not fit the loss.
LossValues add_loss(Graph& graph, const std::string& loss, const LoweredValue& prediction);

// The loss of images that are mixed, and of a label each.
struct MixedLossValues {
  // Graph inputs, in this order: the factors of the losses of own and of other labels (n, f32), the
  // other labels (n, i32), the own ones.
  int factor, other_factor, other, target;
  int loss;  // n values
};

// Adds factor * (loss of the own label) + other_factor * (loss of the other one). Throws like
// add_loss(), and InvalidArgument for a loss that takes no labels.
MixedLossValues add_mixed_loss(Graph& graph, const std::string& loss, int prediction);

inline LossValues add_loss(Graph& graph, const std::string& loss, int prediction) {
  return add_loss(graph, loss, LoweredValue{prediction, -1});
}

// The same for a network's first output. The loss of one that is denormalized is that of the value
// before and of normalized targets, which must be numbers; the input has the data's units.
LossValues add_loss(LoweredNetwork& network, const std::string& loss);

}  // namespace lockstep
