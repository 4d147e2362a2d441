// Trainings by several processes that share a device with queues, on a stand-in for one: the bits
// are those of one process, whoever dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/parallel/process/runtime.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/recovery.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::Failure;
using testing::Follower;

TrainingProblem problem_of_digits() {
  TrainingData data{.training = testing::some_digits(70),
                    .validation = testing::some_digits(23, 100)};
  data.augmentation.reflect_x = true;
  data.noise.salt_and_pepper = 0.05;
  return {testing::small_classifier(), std::move(data)};
}

void fail_here(const char* place, int64_t iteration, int64_t) {
  const Failure& f = testing::failure();
  if (f.place != place || worker_context().worker() != f.worker || iteration != f.iteration) return;
  kill(getpid(), SIGKILL);
}

// A worker's, which lasts as long as itself.
const FakeDevice& worker_device() {
  static const FakeDevice fake;
  return fake;
}

TrainingProblem problem_on_a_device(Failure f) {
  worker_device();
  testing::failure() = std::move(f);
  set_fail_point_hook(fail_here);
  return problem_of_digits();
}

// 10 observations of each mini-batch, in shards of 2.
TrainingOptions options_for(int64_t workers) {
  TrainingOptions options = testing::small_options();
  options.mini_batch_size = 10;
  options.shard_size = 2;
  options.max_epochs = 4;
  options.device = "cuda:0";
  options.workers = workers;
  return options;
}

struct Outcome {
  TrainingResult result;
  std::vector<std::vector<float>> values;
};

Outcome run(const TrainingOptions& options, Follower& follower, const Failure& f = {},
            TrainingControl control = {}) {
  TrainingProblem problem = problem_of_digits();
  control.observers.push_back(&follower);
  Outcome outcome{
      train(make_call<&problem_on_a_device>(f), problem.network, problem.data, options, control),
      {}};
  EXPECT_EQ(problem.network.device(), Device{}) << "the network did not come back";
  for (const auto& l : problem.network.learnables()) outcome.values.push_back(l.value.to_vector());
  for (const auto& s : problem.network.state()) outcome.values.push_back(s.value.to_vector());
  return outcome;
}

class DeviceWorkers : public ::testing::Test {
 protected:
  // By one process, on the device.
  Outcome alone(TrainingOptions options) {
    Follower nobody;
    options.workers = 0;
    options.worker_load = {};
    return run(options, nobody);
  }
  void expect_same(const Outcome& a, const Outcome& b) {
    EXPECT_EQ(a.result.digest, b.result.digest);
    EXPECT_EQ(a.result.iterations.back().chain, b.result.iterations.back().chain);
    EXPECT_EQ(a.values, b.values);
    ASSERT_EQ(a.result.validations.size(), b.result.validations.size());
    for (size_t i = 0; i < a.result.validations.size(); ++i) {
      EXPECT_EQ(a.result.validations[i].loss, b.result.validations[i].loss);
      EXPECT_EQ(a.result.validations[i].accuracy, b.result.validations[i].accuracy);
    }
  }

  const FakeDevice fake_;
};

TEST_F(DeviceWorkers, OneDigestForAnyNumberAndLoad) {
  const Outcome expected = alone(options_for(0));
  for (const std::vector<double>& loads :
       std::vector<std::vector<double>>{{1}, {1, 1}, {3, 1}, {1, 1, 1}, {0, 2, 1}}) {
    TrainingOptions options = options_for(static_cast<int64_t>(loads.size()));
    options.worker_load = loads;
    Follower follower;
    const Outcome outcome = run(options, follower);
    expect_same(outcome, expected);
    std::printf("%d workers: shards by worker", static_cast<int>(loads.size()));
    for (size_t w = 0; w < loads.size(); ++w) {
      const int64_t shards = outcome.result.workers[w].shards;
      std::printf(" %lld", static_cast<long long>(shards));
      EXPECT_EQ(shards > 0, loads[w] > 0);
    }
    std::printf(", digest %s\n", outcome.result.digest.to_string().c_str());
  }
}

TEST_F(DeviceWorkers, ThresholdsAndClassWeights) {
  TrainingOptions options = options_for(5);
  options.gradient_threshold = 0.05;
  options.gradient_threshold_method = "global-l2norm";
  options.class_weights = {1, 2, 0.5, 1, 1, 3, 1, 1, 1, 0.25};
  options.mini_batch_size = 13;  // shards of 2 and 1; the last one has 3 of them
  options.last_mini_batch = "keep";
  Follower follower;
  expect_same(run(options, follower), alone(options));
}

TEST_F(DeviceWorkers, WhoeverDiesIsReplaced) {
  const Outcome expected = alone(options_for(0));
  for (const char* place : {"backward", "exchange", "update", "join"}) {
    SCOPED_TRACE(place);
    Follower follower;
    const int64_t iteration = std::string(place) == "join" ? 1 : 6;
    expect_same(run(options_for(3), follower, {place, "kill", 2, iteration, -1}), expected);
    EXPECT_EQ(testing::losses(follower).size(), 1u);
  }
}

// From processes to one, and back.
TEST_F(DeviceWorkers, StopAndResumeWithAnotherNumber) {
  const Outcome expected = alone(options_for(0));
  const testing::TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path + "/checkpoints";
  control.resume = true;
  Outcome last;
  int64_t iterations = 0;
  for (const int64_t workers : {2, 0, 3}) {
    iterations += 9;
    control.stop_after = workers == 3 ? 0 : iterations;
    Follower follower;
    follower.last = iterations - 9;
    last = run(options_for(workers), follower, {}, control);
  }
  expect_same(last, expected);
}

// What a worker of an open pool does to its device, and leaves there.
TEST_F(DeviceWorkers, LeaveTheDeviceAsItWas) {
  Pool pool({.workers = 3});
  Follower follower;
  expect_same(run(options_for(3), follower), alone(options_for(0)));
  for (const auto& misuse : pool.submit_on_all([] { return worker_device().misuse(); })) {
    EXPECT_EQ(misuse.get(), std::vector<std::string>{});
  }
  for (const auto& used : pool.submit_on_all([] { return worker_device().used(); })) {
    EXPECT_EQ(used.get(), 0u);
  }
}

}  // namespace
}  // namespace lockstep
