// Trainings whose values overflow although the loss stays finite, networks without parameters, and
// ranges of inputs.
#include "lockstep/train/state/finite_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/state/checkpoint.h"
#include "lockstep/train/trainer.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Two features, two classes. From observation `first` on the features are `large`.
DatastorePtr points(int64_t n, int64_t first, float large) {
  ArrayBlock block{n, {2}, {}};
  ImageLabels labels{.classes = {"a", "b"}};
  for (int64_t i = 0; i < n; ++i) {
    const float size = (i < first ? 1 : large) * (1 + static_cast<float>(i % 3) / 4);
    block.values.push_back(i % 2 == 0 ? size : -size);
    block.values.push_back(i % 4 < 2 ? size : -size);
    labels.labels.push_back(i % 2);
  }
  return array_datastore(std::move(block), std::move(labels));
}

Network perceptron(bool normalized) {
  Network network{feature_input({.features = 2, .normalization = "none"})};
  if (normalized) network.add(batch_normalization());
  network.add(fully_connected({.units = 2}));
  network.add(softmax());
  network.initialize(1);
  return network;
}

// Mini-batches of 4 in order, a validation and a checkpoint after each.
TrainingOptions ordered() {
  TrainingOptions options;
  options.solver.initial_learning_rate = 0.01;
  options.mini_batch_size = 4;
  options.max_epochs = 1;
  options.threads = 2;
  options.data.shuffle = Shuffle::never;
  options.validation.frequency = options.checkpoints.frequency = 1;
  options.validation.frequency_unit = options.checkpoints.frequency_unit = FrequencyUnit::iteration;
  options.checkpoints.kept = 10;
  return options;
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Diverged& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "it went on";
}

TEST(FiniteValues, AVarianceThatOverflowsIsNamedAndNotSaved) {
  const testing::TemporaryFolder folder;
  Network network = perceptron(true);
  const std::string failure = failure_of([&] {
    train(network, {points(16, 8, 1e25f), points(8, 8, 1)}, ordered(),
          {.checkpoint_folder = folder.path});
  });
  EXPECT_EQ(failure,
            "[training] after iteration 3, `variance` of layer `batch_normalization_1` has 2 of 2 "
            "values that are not finite, although the loss is finite | the square of a number "
            "above 1.8e19 overflows: normalize the data, or lower initial_learning_rate; the "
            "values after iteration 2 are saved");
  const auto saved = checkpoints_in(local_files(), folder.path);
  ASSERT_EQ(saved.size(), 2u);
  for (const NamedTensor& t : checkpoint_values(local_files(), saved[0])) {
    for (const float value : t.tensor.to_vector()) EXPECT_TRUE(std::isfinite(value)) << t.name;
  }
}

TEST(FiniteValues, AreLookedAtInTheEndWithoutValidationAndCheckpoints) {
  Network network = perceptron(true);
  EXPECT_NE(failure_of([&] {
              train(network, {points(16, 8, 1e25f)}, ordered());
            }).find("after iteration 4, `variance` of layer `batch_normalization_1` has 2 of 2"),
            std::string::npos);
}

TEST(FiniteValues, SquaresOfGradientsThatOverflowAreNamed) {
  for (const char* solver : {"adam", "adamw", "rmsprop"}) {
    TrainingOptions options = ordered();
    options.solver.type = solver;
    Network network = perceptron(false);
    const std::string failure = failure_of([&] {
      train(network, {points(16, 8, 1e21f), points(8, 8, 1)}, options);
    });
    EXPECT_NE(failure.find("after iteration 3, the solver's `"), std::string::npos) << failure;
    EXPECT_NE(failure.find("for `weights` of layer `fully_connected_1` has 4 of 4 values"),
              std::string::npos)
        << failure;
    EXPECT_NE(failure.find("gradient_threshold"), std::string::npos) << failure;
  }
}

TrainingProblem overflowing(bool validates) {
  TrainingProblem problem;
  problem.network = perceptron(true);
  problem.data.training = points(16, 8, 1e25f);
  if (validates) problem.data.validation = points(8, 8, 1);
  return problem;
}

// With validations a worker looks at its values, otherwise the client at what it fetches.
TEST(FiniteValues, OfWorkersAreNamedInTheSameWay) {
  for (const bool validates : {true, false}) {
    TrainingProblem alone = overflowing(validates), problem = overflowing(validates);
    TrainingOptions options = ordered();
    const std::string one = failure_of([&] { train(alone.network, alone.data, options); });
    options.workers.count = 2;
    options.threads = 1;
    const std::string many = failure_of(
        [&] { train(make_call<&overflowing>(validates), problem.network, problem.data, options); });
    EXPECT_EQ(many, one);
    EXPECT_EQ(network_digest(problem.network), network_digest(alone.network)) << validates;
  }
}

TEST(FiniteValues, OfADeviceAreNamedInTheSameWay) {
  const devicetest::FakeDevice fake;
  for (const char* solver : {"sgdm", "adam"}) {
    const bool normalized = std::string(solver) == "sgdm";
    std::vector<std::string> failures;
    for (const char* device : {"cpu", "cuda:0"}) {
      TrainingOptions options = ordered();
      options.solver.type = solver;
      options.device = device;
      Network network = perceptron(normalized);
      failures.push_back(failure_of([&] {
        train(network, {points(16, 8, normalized ? 1e25f : 1e21f), points(8, 8, 1)}, options);
      }));
    }
    EXPECT_EQ(failures[0], failures[1]);
    EXPECT_NE(failures[0], "it went on");
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(FiniteValues, EachPlaceIsFound) {
  Network network = perceptron(true);
  TrainingOptions options = ordered();
  options.solver.type = "adam";
  const auto solver = make_solver(network, options);
  ThreadPool pool(2);
  EXPECT_FALSE(find_not_finite(network, *solver, pool));
  const auto found_with = [&](const Tensor& tensor, float bad) {
    float& value = tensor.data<float>()[tensor.shape().elements() - 1];
    const float before = value;
    value = bad;
    const auto found = find_not_finite(network, *solver, pool);
    value = before;
    return found ? found->what : "nothing";
  };
  EXPECT_EQ(found_with(network.parameter("fully_connected_1.weights"), std::nanf("")),
            "`weights` of layer `fully_connected_1` has 1 of 4 values that are not finite");
  EXPECT_EQ(found_with(network.state_value("batch_normalization_1.mean"), -kInfinity),
            "`mean` of layer `batch_normalization_1` has 1 of 2 values that are not finite");
  EXPECT_EQ(found_with(solver->state(3)[1], kInfinity),
            "the solver's `square` for `bias` of layer `fully_connected_1` has 1 of 2 values that "
            "are not finite");
  EXPECT_EQ(
      found_with(network.parameter("fully_connected_1.weights"), std::numeric_limits<float>::max()),
      "nothing");
}

TEST(FiniteValues, LargeTensorsAreReadToTheirEnd) {
  Network network{feature_input({.features = 1000, .normalization = "none"}),
                  fully_connected({.units = 300})};
  network.initialize(1);
  const auto solver = make_solver(network, {});
  ThreadPool pool(3);
  float* const weights = network.parameter("fully_connected_1.weights").data<float>();
  for (const int64_t place : {0, 65535, 65536, 299999}) {
    const float before = weights[place];
    weights[place] = kInfinity;
    EXPECT_TRUE(find_not_finite(network, *solver, pool)) << place;
    weights[place] = before;
  }
  EXPECT_FALSE(find_not_finite(network, *solver, pool));
}

TEST(NoParameters, AThresholdByNormIsNotAProblem) {
  using Method = GradientThresholdMethod;
  const devicetest::FakeDevice fake;
  for (const char* device : {"cpu", "cuda:0"}) {
    for (const auto& [method, threshold] :
         {std::pair{Method::l2norm, 0.0}, std::pair{Method::l2norm, 1.0},
          std::pair{Method::global_l2norm, 1.0}, std::pair{Method::absolute_value, 1.0}}) {
      TrainingOptions options = ordered();
      options.device = device;
      options.solver.gradient_threshold = threshold;
      options.solver.gradient_threshold_method = method;
      Network network{feature_input({.features = 2, .normalization = "none"}), softmax()};
      network.initialize(1);
      const TrainingResult result = train(network, {points(16, 16, 1), points(8, 8, 1)}, options);
      EXPECT_EQ(result.last_iteration, 4) << static_cast<int>(method);
    }
  }
}

// (value - offset) * factor in f32.
TEST(InputNormalization, ThatLeavesTheRangeOfFloatsIsRefused) {
  const auto refused = [](const char* how, const ChannelSummary& channel) {
    Network network{feature_input({.features = 2, .normalization = how})};
    network.initialize(1);
    return testing::message_of<InvalidArgument>([&] {
      set_input_normalization(network, {{0, 1, -1, 1}, channel});
    });
  };
  const std::string nothing = "(nothing was thrown)";
  EXPECT_EQ(refused("z-score", {0, 9e37, -9e37, 9e37}),
            "[training] normalization = \"z-score\" of the input `feature_input_1` leaves the "
            "range of f32: channel 2 has values from -9e+37 to 9e+37 with standard deviation "
            "9e+37");
  EXPECT_NE(refused("z-score", {0, 1e-40, -1e-40, 1e-40}), nothing);
  EXPECT_NE(refused("rescale-zero-one", {0, 1e38, -3e38, 3e38}), nothing);
  EXPECT_NE(refused("rescale-symmetric", {0, 1e38, -3e38, 3.1e38}), nothing);
  EXPECT_NE(refused("zero-center", {-3e38, 1e38, -3e38, 3e38}), nothing);
  EXPECT_EQ(refused("z-score", {0, 8e37, -9e37, 9e37}), nothing);
  EXPECT_EQ(refused("none", {0, 9e37, -3.4e38, 3.4e38}), nothing);

  Network network{feature_input({.features = 2, .normalization = "z-score"}),
                  fully_connected({.units = 2}), softmax()};
  network.initialize(1);
  EXPECT_THROW(train(network, {points(16, 0, 2e38f)}, ordered()), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
