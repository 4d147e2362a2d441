// What validations decide: the schedule "plateau", patience and the best network by an objective,
// and moving averages, which they evaluate.
#include "lockstep/train/loop/objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/optimizer/averaged_solver.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/state/checkpoint.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TrainingProblem digits_problem() {
  return {small_classifier(), {some_digits(50), some_digits(20, 100), {.reflect_x = true}}};
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

// A network, what training it has given, and the values of its parameters.
struct Trained {
  TrainingResult result;
  Network network;
  std::vector<float> values() const {
    std::vector<float> all;
    for (const auto& p : network.parameters()) {
      for (const float v : p.value.to_vector()) all.push_back(v);
    }
    return all;
  }
};

Trained trained(const TrainingOptions& options, const TrainingControl& control = {}) {
  TrainingProblem problem = digits_problem();
  Trained made;
  made.result =
      train(make_call<&digits_problem>(), problem.network, problem.data, options, control);
  made.network = std::move(problem.network);
  return made;
}

// A learning rate that is too large, so that not every validation is better.
TrainingOptions restless_options() {
  TrainingOptions options = small_options();
  options.solver.initial_learning_rate = 0.5;
  options.validation.frequency = 1;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.max_epochs = 5;
  return options;
}

TrainingOptions plateau_options() {
  TrainingOptions options = restless_options();
  options.schedule.types = {"plateau"};
  options.schedule.plateau_patience = 0;
  options.schedule.drop_factor = 0.5;
  return options;
}

// Compares a training with others: of more threads, of workers, stopped and resumed anywhere.
void expect_the_law(TrainingOptions options) {
  const Trained whole = trained(options);
  options.threads = 1;
  EXPECT_EQ(trained(options).result.iterations.back().chain, whole.result.iterations.back().chain);
  options.workers.count = 3;
  const Trained by_workers = trained(options);
  EXPECT_EQ(by_workers.result.iterations.back().chain, whole.result.iterations.back().chain);
  EXPECT_EQ(by_workers.values(), whole.values());
  options.workers.count = 0;
  options.threads = 2;
  for (const int64_t stop : {1, 4, 7, 9}) {
    const TemporaryFolder folder;
    TrainingControl control{.checkpoint_folder = folder.path, .stop_after = stop};
    trained(options, control);
    control.stop_after = 0;
    control.resume = true;
    const Trained resumed = trained(options, control);
    ASSERT_EQ(resumed.result.iterations.front().iteration, stop + 1) << "it has begun anew";
    EXPECT_EQ(resumed.result.digest, whole.result.digest) << stop;
    EXPECT_EQ(resumed.values(), whole.values()) << stop;
    EXPECT_EQ(resumed.result.validations.back().loss, whole.result.validations.back().loss);
  }
}

TEST(Plateau, RatesFollowTheValidationsOfTheTraining) {
  const TrainingOptions options = plateau_options();
  const TrainingResult result = trained(options).result;
  double rate = options.solver.initial_learning_rate,
         best = std::numeric_limits<double>::infinity();
  int reductions = 0;
  for (size_t i = 0; i < result.iterations.size(); ++i) {
    EXPECT_EQ(result.iterations[i].learning_rate, rate) << i;
    const double loss = result.validations[i].loss;
    if (loss < best * (1 - 1e-4)) {
      best = loss;
    } else {
      rate *= 0.5;
      ++reductions;
    }
  }
  EXPECT_GE(reductions, 2) << "the test needs a training with plateaus";
}

TEST(Plateau, IsPartOfWhatIsResumed) { expect_the_law(plateau_options()); }

TEST(Plateau, IsReplayedWithItsValidations) {
  const TrainingOptions options = plateau_options();
  const TemporaryFolder folder;
  const Trained whole = trained(options, {.checkpoint_folder = folder.path});
  TrainingControl control;
  control.replay = Replay{folder.path, whole.result.last_iteration, 0};
  const Trained again = trained(options, control);
  EXPECT_EQ(again.result.digest, whole.result.digest);
  EXPECT_EQ(again.result.iterations.size(), whole.result.iterations.size());
}

TEST(Plateau, NeedsValidationsAndAFactorBelowOne) {
  TrainingProblem problem = digits_problem();
  problem.data.validation = nullptr;
  expect_says(testing::message_of<InvalidArgument>(
                  [&] { train(problem.network, problem.data, plateau_options()); }),
              "the schedule plateau needs validation data");
  TrainingOptions options = plateau_options();
  options.schedule.drop_factor = 1;
  expect_says(testing::message_of<InvalidArgument>([&] { options.check(); }),
              "drop_factor must be below 1");
}

ValidationRecord validation(int64_t iteration, double loss, double accuracy, double f1 = 0) {
  ValidationRecord v;
  v.iteration = iteration, v.loss = loss, v.accuracy = accuracy;
  v.metrics = {{"f1", f1}};
  return v;
}

TEST(Objective, KnowsItsDirection) {
  const auto best = [](const std::string& metric, std::vector<ValidationRecord> all) {
    ValidationOptions options;
    options.objective = metric;
    const ValidationRecord* const found = Objective(options).best(all);
    return found ? found->iteration : 0;
  };
  const std::vector<ValidationRecord> all{validation(1, 3, 0.1, kNan), validation(2, 1, 0.5, 0.25),
                                          validation(3, kNan, 0.5, 0.75),
                                          validation(4, 1, 0.25, 0.75)};
  EXPECT_EQ(best("loss", all), 2);
  EXPECT_EQ(best("accuracy", all), 2);
  EXPECT_EQ(best("f1", all), 3);
  EXPECT_EQ(best("loss", {validation(1, kNan, 0)}), 0);
  EXPECT_EQ(best("loss", {}), 0);
  EXPECT_THROW(best("rmse", all), InvalidArgument);
  for (const char* larger :
       {"accuracy", "top-5", "f1", "auc", "precision", "recall", "own score"}) {
    EXPECT_TRUE(larger_is_better(larger)) << larger;
  }
  for (const char* smaller : {"loss", "rmse", "mae", "perplexity", "own error"}) {
    EXPECT_FALSE(larger_is_better(smaller)) << smaller;
  }
}

// The share of wrong observations, with its direction.
struct WrongShare {
  static constexpr bool smaller_is_better = true;
  int64_t wrong = 0, all = 0;
  void accumulate(const ScoredObservation& o) {
    wrong += predicted_class(o.scores) != o.label ? 1 : 0;
    ++all;
  }
  void merge(const WrongShare& later) { wrong += later.wrong, all += later.all; }
  double finish() const { return static_cast<double>(wrong) / static_cast<double>(all); }
};

TEST(Objective, ChoosesTheBestNetworkAndTheEnd) {
  TrainingOptions options = restless_options();
  const TrainingResult plain = trained(options).result;
  const auto& all = plain.validations;
  const auto most = std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.accuracy < b.accuracy; });
  options.validation.output_network = OutputNetwork::best;
  options.validation.objective = "accuracy";
  const TrainingResult by_accuracy = trained(options).result;
  EXPECT_EQ(by_accuracy.network_iteration, most->iteration);
  EXPECT_EQ(by_accuracy.digest, plain.digest) << "what was computed stays the same";
  // A metric that the options do not name is computed, and one of the user has its direction.
  options.validation.objective = "top-1";
  const TrainingResult by_metric = trained(options).result;
  EXPECT_EQ(by_metric.network_iteration, most->iteration);
  ASSERT_EQ(by_metric.validations.front().metrics.size(), 1u);
  EXPECT_EQ(by_metric.validations.front().metrics[0].name, "top-1");
  options.validation.objective = "wrong";
  options.validation.custom_metrics = {make_metric("wrong", WrongShare())};
  EXPECT_EQ(trained(options).result.network_iteration, most->iteration);
  options.validation.custom_metrics.clear();
  options.validation.objective = "accuracy";
  options.validation.patience = 2;
  int64_t expected = 0, without = 0;
  double best = -1;
  for (const ValidationRecord& v : all) {
    without = v.accuracy > best ? 0 : without + 1;
    best = std::max(best, v.accuracy);
    if (expected == 0 && without == 2) expected = v.iteration;
  }
  ASSERT_GT(expected, 0) << "the test needs a training whose accuracy stops rising";
  EXPECT_EQ(trained(options).result.last_iteration, expected);
}

TEST(Objective, IsRefusedIfThereIsNoSuchMetric) {
  const auto refused = [](const std::string& objective) {
    TrainingOptions options = small_options();
    options.validation.objective = objective;
    return testing::message_of<InvalidArgument>([&] { trained(options); });
  };
  expect_says(refused("accurcy"), "accurcy");
  expect_says(refused("rmse"), "rmse");
}

TEST(AverageDecay, FollowsTheRecurrenceInDoubles) {
  Network network = small_classifier();
  for (const char* type : {"sgdm", "adam"}) {
    TrainingOptions options;
    options.solver.type = type;
    options.average_decay = 0.9;
    options.freeze = {"fully_connected_1"};
    const auto solver = make_solver(network, options);
    EXPECT_EQ(solver->state_names().back(), "average");
    EXPECT_EQ(solver->state_names().size(), solver_arrays(options));
    for (size_t p = 0; p < network.parameters().size(); ++p) {
      const Tensor& w = network.parameters()[p].value;
      const std::vector<float> gradients(static_cast<size_t>(w.shape().elements()), 0.7f);
      std::vector<double> expected;
      for (int64_t t = 1; t <= 20; ++t) {
        const UpdateScalars scalars{0.1 / static_cast<double>(t), t, 3.0};
        const auto half = static_cast<int64_t>(gradients.size()) / 2;
        solver->update(p, {0, half}, gradients.data(), scalars);
        solver->update(p, {half, std::ssize(gradients) - half}, gradients.data(), scalars);
        const std::vector<float> now = w.to_vector();
        if (t == 1) expected.assign(now.begin(), now.end());
        for (size_t i = 0; t > 1 && i < now.size(); ++i) {
          expected[i] = 0.9 * expected[i] + (1 - 0.9) * static_cast<double>(now[i]);
        }
      }
      const std::vector<float> average = solver->state(p).back().to_vector();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(average[i]), expected[i], 2e-6) << type << " " << p;
      }
      if (network.parameters()[p].name.starts_with("fully_connected_1")) {
        EXPECT_EQ(average, w.to_vector()) << "what is frozen is its own average";
      }
    }
  }
}

TEST(AverageDecay, IsValidatedAndBecomesTheNetwork) {
  TrainingOptions options = restless_options();
  const Trained plain = trained(options);
  options.average_decay = 0.8;
  const TemporaryFolder folder;
  Trained averaged = trained(options, {.checkpoint_folder = folder.path});
  // The iterations are the same but for the average in their digests.
  for (size_t i = 0; i < plain.result.iterations.size(); ++i) {
    EXPECT_EQ(averaged.result.iterations[i].loss, plain.result.iterations[i].loss);
  }
  EXPECT_NE(averaged.result.digest, plain.result.digest);
  const DatastorePtr data = digits_problem().data.validation;
  EXPECT_EQ(evaluate(averaged.network, data).loss, averaged.result.validations.back().loss);
  EXPECT_NE(averaged.result.validations.back().loss, plain.result.validations.back().loss);
  EXPECT_NE(averaged.values(), plain.values());
  // The checkpoint has both.
  const auto file = read_safetensors(
      local_files().read(checkpoints_in(local_files(), folder.path).front()), "checkpoint");
  std::vector<float> own, averages;
  for (const auto& p : averaged.network.parameters()) {
    for (const float v : file.at("learnable/" + p.name, "").to_vector()) own.push_back(v);
    for (const float v : file.at("solver/" + p.name + ".average", "").to_vector()) {
      averages.push_back(v);
    }
  }
  EXPECT_EQ(own, plain.values());
  EXPECT_EQ(averages, averaged.values());
  // What another training begins with are the averages.
  const std::string path = checkpoints_in(local_files(), folder.path).front();
  bool has_averages = false;
  const auto values = checkpoint_values(local_files(), path, nullptr, &has_averages);
  EXPECT_TRUE(has_averages);
  const auto of = [&](const std::vector<NamedTensor>& all) {
    std::vector<float> found;
    for (const auto& p : averaged.network.parameters()) {
      const auto t = std::ranges::find(all, p.name, &NamedTensor::name);
      for (const float v : t->tensor.to_vector()) found.push_back(v);
    }
    return found;
  };
  EXPECT_EQ(of(values), averaged.values());
  EXPECT_EQ(of(checkpoint_values(local_files(), path)), plain.values());
}

TEST(AverageDecay, KeepsTheLaw) {
  TrainingOptions options = restless_options();
  options.average_decay = 0.8;
  expect_the_law(options);
  options.validation.output_network = OutputNetwork::best;
  expect_the_law(options);
  TrainingProblem problem = digits_problem();
  Trained best = trained(options);
  EXPECT_EQ(evaluate(best.network, problem.data.validation).loss,
            Objective(options.validation).best(best.result.validations)->loss);
}

}  // namespace
}  // namespace lockstep
