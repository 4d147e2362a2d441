// Loss, accuracy, metrics and outputs of a network over a datastore.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/nn/metrics/confusion_matrix.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct Evaluation {
  int64_t observations = 0;
  double loss = 0;
  double accuracy = 0;  // NaN if targets are images
  std::vector<MetricValue> metrics = {};
  std::optional<ConfusionMatrix> confusion = {};  // if requested
  std::string examples = "images";  // what was evaluated: "images", "rows", "observations"
};

struct EvaluationOptions {
  int threads = 0;  // 0: one for each processor
  // A target for each observation; null: the targets of the examples, or their labels.
  DatastorePtr targets = {};
  InputNoise noise = {};                       // on the inputs, drawn once
  uint64_t seed = 0;                           // of the noise
  std::vector<std::string> metrics = {};       // names, see engine/nn/metrics/metric.h
  std::vector<MetricPtr> custom_metrics = {};  // metrics that the user implements
  bool confusion = false;  // also count the predicted classes of each true class
  // Called with each of Datastore::notices() of the data before it is read, such as that the
  // columns of a table were put into the network's order (see match_columns()).
  std::function<void(const std::string&)> notice = {};
};

// Exact loss and accuracy over a datastore. Every observation counts once. Batches have a fixed
// size with padding, so that a score does not depend on other observations. Throws InvalidArgument
// if data, metrics and network do not fit each other, before any image is read.
Evaluation evaluate(Network& network, const DatastorePtr& data,
                    const EvaluationOptions& options = {});

// Outputs (n x output of the network, row-major) for each observation, computed in the same way.
Tensor predict(Network& network, const DatastorePtr& data, const EvaluationOptions& options = {});

}  // namespace lockstep
