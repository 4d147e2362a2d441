// Trainings by several processes on devices with streams, shared or one for each, on a stand-in.
// The bits are those of one process, whichever worker dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/elementwise/dropout.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/parallel/process/worker_context.h"
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

void fail_here(const char* point, int64_t iteration, int64_t) {
  const Failure& f = testing::failure();
  if (f.point != point || worker_context().worker() != f.worker || iteration != f.iteration) return;
  kill(getpid(), SIGKILL);
}

// Fails an exchange between devices: once, or each time ("throw again").
void fail_between(int64_t exchange) {
  const Failure& f = testing::failure();
  if (f.point != "link" || worker_context().worker() != f.worker || exchange != f.iteration) return;
  if (f.how == "kill") kill(getpid(), SIGKILL);
  static bool failed = false;
  if (!std::exchange(failed, true) || f.how == "throw again") throw Error("[test] a cable is bad");
}

// Flips a bit of the worker's results.
void flip_a_bit(const char*, int64_t iteration, int64_t, void* data, size_t) {
  const Failure& f = testing::failure();
  if (f.point != "flip" || worker_context().worker() != f.worker || iteration != f.iteration)
    return;
  static_cast<unsigned char*>(data)[2] ^= 64;
}

bool lose(int64_t exchange) {
  const Failure& f = testing::failure();
  if (f.point != "loss" || worker_context().worker() != f.worker) return false;
  static bool lost = false;
  return exchange == f.iteration && !std::exchange(lost, true);
}

// Fails while a group of devices is formed.
void fail_to_join(const std::string& what) {
  const Failure& f = testing::failure();
  const bool mine = f.worker == 0 || worker_context().worker() == f.worker;
  if (f.point == what && mine) throw Error("[test] no " + what);
}

// The device of a worker process, which it keeps. `linked`: each worker has its own device with
// links to the others.
const FakeDevice& worker_device(bool linked = false) {
  static const FakeDevice fake(
      0, {.identity = !linked                                ? ""
                      : testing::failure().point == "shared" ? "one"
                                                             : std::to_string(getpid()),
          .on_exchange = fail_between,
          .loses = lose,
          .on_join = fail_to_join});
  return fake;
}

// The verdict of the self-test here; that of the other worker if `other`.
template <bool other>
kernels::Verdict verdict_of_test(const kernels::DeviceInfo&) {
  kernels::Verdict verdict;
  verdict.kernels = {{.kernel = "relu", .type = "f32"}, {.kernel = "tanh", .type = "f32"}};
  if (other) verdict.kernels[1].state = kernels::TestState::failed;
  return verdict;
}

TrainingProblem problem_on_a_device(Failure f, bool linked) {
  testing::failure() = std::move(f);
  if (testing::failure().point == "verdict") {
    const bool other = worker_context().worker() == testing::failure().worker;
    kernels::set_verdict_source(other ? verdict_of_test<true> : verdict_of_test<false>);
  }
  worker_device(linked);
  if (testing::failure().point == "defect" &&
      worker_context().worker() == testing::failure().worker) {
    static const kernels::Table& right = kernels::table_for({Device::Kind::cuda, 0});
    static kernels::Table wrong = right;
    wrong.dropout = [](const kernels::DropoutProblem& problem) {
      kernels::DropoutProblem other = problem;
      other.probability = 0.4;
      return right.dropout(other);
    };
    kernels::register_table({Device::Kind::cuda, 0}, &wrong);
  }
  set_fail_point_hook(fail_here);
  set_corruption_hook(flip_a_bit);
  return problem_of_digits();
}

// 10 observations in each mini-batch, in shards of 2.
TrainingOptions options_for(int64_t workers) {
  TrainingOptions options = testing::small_options();
  options.mini_batch_size = 10;
  options.shards.size = 2;
  options.max_epochs = 4;
  options.device = "cuda:0";
  options.workers.count = workers;
  options.shards.compare_first = false;
  return options;
}

struct WorkersOutcome {
  TrainingResult result;
  std::vector<std::vector<float>> values;
};

// Records the notices about the route of sums.
struct Listener : Follower {
  void notice(const std::string& text) override { notices.push_back(text); }
  std::vector<std::string> notices;
};

WorkersOutcome run(const TrainingOptions& options, Follower& follower, const Failure& f = {},
                   TrainingControl control = {}, bool linked = false) {
  TrainingProblem problem = problem_of_digits();
  control.observers.push_back(&follower);
  WorkersOutcome outcome{train(make_call<&problem_on_a_device>(f, linked), problem.network,
                               problem.data, options, control),
                         {}};
  EXPECT_EQ(problem.network.device(), Device{}) << "the network did not come back";
  for (const auto& l : problem.network.parameters()) outcome.values.push_back(l.value.to_vector());
  for (const auto& s : problem.network.state()) outcome.values.push_back(s.value.to_vector());
  return outcome;
}

// Parameter: whether each worker has its own device.
class DeviceWorkers : public ::testing::TestWithParam<bool> {
 protected:
  WorkersOutcome by_workers(const TrainingOptions& options, Follower& follower,
                            const Failure& f = {}, const TrainingControl& control = {}) {
    return run(options, follower, f, control, GetParam());
  }
  // The result of one process on the device.
  WorkersOutcome alone(TrainingOptions options) {
    Follower nobody;
    options.workers.count = 0;
    options.workers.load = {};
    return run(options, nobody);
  }
  void expect_same(const WorkersOutcome& a, const WorkersOutcome& b) {
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

TEST_P(DeviceWorkers, OneDigestForAnyNumberAndLoad) {
  const WorkersOutcome expected = alone(options_for(0));
  for (const std::vector<double>& loads :
       std::vector<std::vector<double>>{{1}, {1, 1}, {3, 1}, {1, 1, 1}, {0, 2, 1}}) {
    TrainingOptions options = options_for(static_cast<int64_t>(loads.size()));
    options.workers.load = loads;
    Listener follower;
    const WorkersOutcome outcome = by_workers(options, follower);
    expect_same(outcome, expected);
    std::printf("%d workers: shards by worker", static_cast<int>(loads.size()));
    for (size_t w = 0; w < loads.size(); ++w) {
      const int64_t shards = outcome.result.workers[w].shards;
      std::printf(" %lld", static_cast<long long>(shards));
      EXPECT_EQ(shards > 0, loads[w] > 0);
    }
    std::printf(", digest %s\n", outcome.result.digest.to_string().c_str());
    std::vector<std::string> route;
    if (loads.size() > 1) {
      route.emplace_back(GetParam() ? "partial sums travel from GPU to GPU"
                                    : "partial sums travel through the hosts' memory: not all of "
                                      "them have links from GPU to "
                                      "GPU (NCCL)");
    }
    EXPECT_EQ(follower.notices, route);
  }
}

TEST_P(DeviceWorkers, ThresholdsAndClassWeights) {
  TrainingOptions options = options_for(5);
  options.solver.gradient_threshold = 0.05;
  options.solver.gradient_threshold_method = GradientThresholdMethod::global_l2norm;
  options.class_weights = {1, 2, 0.5, 1, 1, 3, 1, 1, 1, 0.25};
  options.mini_batch_size = 13;  // shards of 2 and 1; the last mini-batch has 3 of them
  options.data.last_mini_batch = LastMiniBatch::keep;
  Follower follower;
  expect_same(by_workers(options, follower), alone(options));
}

TEST_P(DeviceWorkers, DeadWorkersAreReplaced) {
  const WorkersOutcome expected = alone(options_for(0));
  for (const char* point : {"backward", "exchange", "link", "update", "join"}) {
    if (point == std::string("link") && !GetParam()) continue;
    SCOPED_TRACE(point);
    Follower follower;
    const int64_t iteration = std::string(point) == "join" ? 1 : 6;
    expect_same(by_workers(options_for(3), follower, {point, "kill", 2, iteration, -1}), expected);
    EXPECT_EQ(testing::losses(follower).size(), 1u);
  }
}

// A check in every second iteration. In the sixth it checks the third shard, which belongs to
// worker 2, and the two other workers compute it again.
TEST_P(DeviceWorkers, WorkersWithOtherResultsAreReplaced) {
  TrainingOptions options = options_for(3);
  options.shards.check_frequency = 2;
  for (const uint32_t faulty : {2u, 3u}) {
    Follower follower;
    expect_same(by_workers(options, follower, {"flip", "flip", faulty, 6, -1}), alone(options));
    const auto lost = testing::losses(follower);
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].worker, faulty);
    EXPECT_NE(
        lost[0].how.find("shard 3 of iteration 6, computed several times, has different results: "
                         "the gradient of"),
        std::string::npos)
        << lost[0].how;
  }
  // With two workers each computes it, with one worker that worker alone.
  for (const int64_t workers : {1, 2}) {
    options.workers.count = workers;
    options.shards.check_frequency = 1;
    Follower follower;
    expect_same(by_workers(options, follower), alone(options_for(0)));
    EXPECT_TRUE(testing::losses(follower).empty());
  }
}

// From several processes to one, and back.
TEST_P(DeviceWorkers, StopAndResumeWithAnotherNumber) {
  const WorkersOutcome expected = alone(options_for(0));
  const testing::TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path + "/checkpoints";
  control.resume = true;
  WorkersOutcome last;
  int64_t iterations = 0;
  for (const int64_t workers : {2, 0, 3}) {
    iterations += 9;
    control.stop_after = workers == 3 ? 0 : iterations;
    Follower follower;
    follower.last = iterations - 9;
    last = by_workers(options_for(workers), follower, {}, control);
  }
  expect_same(last, expected);
}

// A task of an open pool leaves the device in the state in which it found it.
TEST_P(DeviceWorkers, LeaveTheDeviceAsItWas) {
  Pool pool({.workers = 3});
  Follower follower;
  expect_same(by_workers(options_for(3), follower), alone(options_for(0)));
  for (const auto& misuse : pool.submit_on_all([] { return worker_device().misuse(); })) {
    EXPECT_EQ(misuse.get(), std::vector<std::string>{});
  }
  for (const auto& used : pool.submit_on_all([] { return worker_device().used(); })) {
    EXPECT_EQ(used.get(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceWorkers, ::testing::Values(false, true),
                         [](const auto& linked) { return linked.param ? "Linked" : "ByHosts"; });

// Each worker compares its first shard, and the one of rank 0 says so. A replacement does not.
TEST_P(DeviceWorkers, CompareTheirFirstShardsWithTheCpus) {
  const WorkersOutcome expected = alone(options_for(0));
  TrainingOptions options = options_for(3);
  options.shards.compare_first = true;
  Listener follower;
  expect_same(by_workers(options, follower, {"backward", "kill", 2, 6, -1}), expected);
  EXPECT_EQ(testing::losses(follower).size(), 1u);
  const auto said =
      std::count_if(follower.notices.begin(), follower.notices.end(), [](const std::string& text) {
        return text.find("the first shard (2 observations) on cuda:0 agrees with the CPU's") == 0;
      });
  EXPECT_EQ(said, 1);
  Listener wrong;
  try {
    by_workers(options, wrong, {"defect", "", 2, 0, -1});
    ADD_FAILURE() << "it trained";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("disagree on the first shard"), std::string::npos)
        << e.what();
  }
  EXPECT_EQ(wrong.last, 0) << "an update took place";
}

TEST(DeviceWorkersOfOtherKinds, AnotherVerdictOfTheSelfTestIsRefusedByName) {
  const FakeDevice fake;
  kernels::set_verdict_source(verdict_of_test<false>);
  Follower nobody;
  run(options_for(2), nobody, {"verdict", "", 7, 0, -1});
  try {
    run(options_for(2), nobody, {"verdict", "", 2, 0, -1});
    ADD_FAILURE() << "it trained";
  } catch (const InvalidArgument& e) {
    const std::string what = e.what();
    for (const char* part :
         {"worker 2", "computes with other numerics: GPU self-test: all passed, ",
          " here, without tanh f32, "}) {
      EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }
  kernels::set_verdict_source(nullptr);
}

TEST(LinkedDevices, AWayThatFailsIsTriedAgain) {
  const FakeDevice fake;
  Listener follower;
  const WorkersOutcome outcome =
      run(options_for(3), follower, {"link", "throw", 2, 7, -1}, {}, true);
  Follower nobody;
  EXPECT_EQ(outcome.result.digest, run(options_for(0), nobody).result.digest);
  EXPECT_EQ(testing::losses(follower).size(), 0u);
  ASSERT_EQ(follower.notices.size(), 2u);
  EXPECT_NE(follower.notices[1].find("a cable is bad"), std::string::npos) << follower.notices[1];
}

// No worker fails, but no data arrives. This is the same for all workers, so none is ended.
TEST(LinkedDevices, WhatIsLostOnItsWayIsSentAgain) {
  const FakeDevice fake;
  Listener follower;
  TrainingOptions options = options_for(3);
  options.workers.limit = 5;
  const WorkersOutcome outcome = run(options, follower, {"loss", "", 2, 7, -1}, {}, true);
  Follower nobody;
  EXPECT_EQ(outcome.result.digest, run(options_for(0), nobody).result.digest);
  EXPECT_EQ(testing::losses(follower).size(), 0u);
  ASSERT_EQ(follower.notices.size(), 2u);
  EXPECT_NE(follower.notices[1].find("no data has arrived for too long"), std::string::npos)
      << follower.notices[1];
}

// All sums then go through the hosts, and the reason is reported.
TEST(LinkedDevices, AllOrNoneAreLinked) {
  const FakeDevice fake;
  Follower nobody;
  const Digest expected = run(options_for(0), nobody).result.digest;
  struct Case {
    Failure failure;
    std::string why;
  };
  for (const Case& c : {Case{{"shared", "", 0, 0, -1}, "workers share a GPU"},
                        Case{{"key", "", 0, 0, -1}, "[test] no key"},
                        Case{{"join", "", 0, 0, -1}, "[test] no join"},
                        Case{{"join", "", 3, 0, -1}, "[test] no join"}}) {
    SCOPED_TRACE(c.why);
    Listener follower;
    TrainingOptions options = options_for(3);
    options.workers.limit = 10;  // waiting for a worker that does not join takes 8 seconds
    const WorkersOutcome outcome = run(options, follower, c.failure, {}, true);
    EXPECT_EQ(outcome.result.digest, expected);
    EXPECT_EQ(testing::losses(follower).size(), 0u);
    ASSERT_EQ(follower.notices.size(), 1u);
    EXPECT_EQ(follower.notices[0].find("partial sums travel through the hosts' memory: "), 0u)
        << follower.notices[0];
    EXPECT_NE(follower.notices[0].find(c.why), std::string::npos) << follower.notices[0];
  }
}

TEST(LinkedDevices, AWayThatAlwaysFailsEndsTheTraining) {
  const FakeDevice fake;
  Listener follower;
  try {
    run(options_for(2), follower, {"link", "throw again", 2, 1, -1}, {}, true);
    FAIL() << "it trained";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("a cable is bad"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
