// Metrics of results by step: each valid step counts once.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep {
namespace {

float number(int64_t i) { return 0.1f * static_cast<float>((i * 37 + 11) % 41) - 2; }

// Sequences of 1, 8, 15, ... steps modulo 23, with targets of two elements by step.
struct Problem {
  std::vector<Array> inputs, targets;

  explicit Problem(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t steps = 1 + 7 * i % 23;
      Array x{{steps, 3}, {}}, y{{steps, 2}, {}};
      for (int64_t k = 0; k < 3 * steps; ++k) x.values.push_back(number(k + 5 * i));
      for (int64_t k = 0; k < 2 * steps; ++k) y.values.push_back(number(3 * k + i));
      inputs.push_back(std::move(x));
      targets.push_back(std::move(y));
    }
  }
  DatastorePtr data() const {
    return with_targets(sequence_datastore(inputs), sequence_datastore(targets));
  }
};

TEST(SequenceMetrics, RmseAndMaeCountEachValidStepOnce) {
  for (const int64_t count : {1, 2, 17, 50}) {
    SCOPED_TRACE(count);
    Network network({sequence_input({.channels = 3, .normalization = "none"}), gru({.units = 5}),
                     fully_connected({.units = 2})});
    network.set_loss("mean_squared_error");
    network.initialize(4);
    const Problem problem(count);
    double squares = 0, distances = 0;
    int64_t elements = 0;
    for (size_t i = 0; i < problem.inputs.size(); ++i) {
      const Array& x = problem.inputs[i];
      const std::vector<float> y =
          network.predict(Tensor::from(x.values, {1, x.shape[0], 3})).to_vector();
      for (size_t k = 0; k < y.size(); ++k, ++elements) {
        const double apart =
            static_cast<double>(y[k]) - static_cast<double>(problem.targets[i].values[k]);
        squares += apart * apart;
        distances += std::abs(apart);
      }
    }
    for (const int threads : {1, 3}) {
      const Evaluation found =
          evaluate(network, problem.data(), {.threads = threads, .metrics = {"rmse", "mae"}});
      ASSERT_EQ(found.metrics.size(), 2u);
      const auto n = static_cast<double>(elements);
      EXPECT_NEAR(found.metrics[0].value, std::sqrt(squares / n), 1e-12);
      EXPECT_NEAR(found.metrics[1].value, distances / n, 1e-12);
      EXPECT_NEAR(found.loss, squares / n, 1e-6);
    }
  }
}

}  // namespace
}  // namespace lockstep
