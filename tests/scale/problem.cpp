#include "tests/scale/problem.h"

#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"

namespace lockstep::testing {

TrainingProblem scale_problem() {
  constexpr int64_t kFeatures = 4, kExamples = 64;
  Network network{feature_input({.features = kFeatures}), fully_connected({.units = 2}), softmax()};
  network.initialize(1);
  std::vector<float> values(static_cast<size_t>(kFeatures * kExamples));
  std::vector<int64_t> labels(static_cast<size_t>(kExamples));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 17);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 2);
  ArrayBlock block{.count = kExamples, .shape = {kFeatures}, .values = std::move(values)};
  return {std::move(network),
          {.training = array_datastore(std::move(block), {.labels = std::move(labels)})}};
}

}  // namespace lockstep::testing
