// Workers that fail at each point of a training: the others continue, and the bits stay.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/process/function.h"
#include "tests/data/support.h"
#include "tests/parallel/network.h"
#include "tests/train/recovery.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::Failure;
using testing::Follower;
using testing::long_options;
using testing::losses;
using testing::run_with_failure;

struct FailPoint {
  const char* point;
  const char* how;
  bool hosts = false;  // on several hosts
};

void PrintTo(const FailPoint& p, std::ostream* to) {
  *to << p.how << " at " << p.point << (p.hosts ? " on another host" : "");
}

class FailPoints : public ::testing::TestWithParam<FailPoint> {};

TEST_P(FailPoints, LeaveTheBitsAlone) {
  const FailPoint p = GetParam();
  if (p.hosts && testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  Follower follower;
  TrainingOptions options = long_options(3);
  options.workers.limit = 1.5;
  if (p.hosts) testing::place_on_hosts(options, {"localhost:1", "127.0.0.2:1", "127.0.0.3:2"});
  // A failure without an iteration happens the first time.
  const std::string point = p.point;
  const int64_t iteration = point == "join" ? 1 : 37;
  TrainingControl control;
  bool asked = false;
  if (point == "publish") {
    // A worker that joins causes another publish.
    follower.on_iteration = [&](const IterationRecord& r) {
      if (r.iteration != 36 || asked) return;
      asked = true;
      kill(follower.present.rbegin()->second,
           SIGKILL);  // the third, unless a slow one was replaced
    };
  }
  // Its number on its host and in the training.
  const uint32_t number = point == "publish" ? 1 : 2;
  const uint32_t worker = p.hosts && point != "publish" ? 4 : number;
  const TrainingResult result =
      run_with_failure(options, follower,
                       {p.point, p.how, number, point == "publish" ? -1 : iteration, -1}, control);
  expect_undisturbed(result, follower, 60);
  const auto lost = losses(follower);
  ASSERT_FALSE(lost.empty()) << "nothing failed";
  for (const auto& loss : lost) {
    std::printf("worker %u %s after iteration %lld; back after %.0f ms\n", loss.worker,
                loss.how.c_str(), static_cast<long long>(loss.iteration), loss.seconds * 1000);
  }
  const bool first = std::any_of(lost.begin(), lost.end(),
                                 [&](const auto& loss) { return loss.worker == worker; });
  EXPECT_TRUE(first) << "the point was never reached";
  if (std::string(p.how) == "hang" && point == "exchange") {
    const char* const wanted = p.hosts ? "hung (worker 4 has not arrived at all_gather number "
                                       : "hung (worker 2 has not arrived at barrier number ";
    EXPECT_NE(lost[0].how.find(wanted), std::string::npos) << lost[0].how;
  }
}

std::vector<FailPoint> points() {
  std::vector<FailPoint> all;
  for (const char* point :
       {"backward", "exchange", "gather", "update", "validation", "join", "publish"}) {
    for (const char* how : {"kill", "stop", "hang"}) all.push_back({point, how});
    for (const char* how : {"kill", "hang"}) all.push_back({point, how, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FailPoints, ::testing::ValuesIn(points()));

// Members that share memory divide the update ranges of the gradients of such a network.
TrainingProblem dense_problem() {
  Network network({image_input({.height = 28, .width = 28, .channels = 1}), flatten(),
                   fully_connected({.units = 300}), relu(), fully_connected({.units = 150}), relu(),
                   fully_connected({.units = 10}), softmax()});
  network.initialize(11);
  return {std::move(network), testing::law_data()};
}

TrainingProblem failing_dense_problem(Failure f) {
  testing::fail_here(std::move(f));
  return dense_problem();
}

// A member that is lost after the exchange of operands leaves an iteration that the others finish:
// they have begun to update. Members that are lost before leave one that is computed again.
TEST(Recovery, MembersThatDivideUpdateRanges) {
  TrainingProblem undisturbed = dense_problem();
  TrainingOptions options = testing::law_options(2);
  options.solver.initial_learning_rate = 0.002;
  const TrainingResult one = train(undisturbed.network, undisturbed.data, options);
  options.threads = 1;
  options.workers.count = 3;
  options.workers.limit = 1.5;
  const testing::TemporaryFolder folder;
  // Which members compute an update range of an iteration depends on who is faster.
  for (const Failure& failure :
       {Failure{"backward", "kill", 2, 7}, Failure{"exchange", "kill", 2, 7},
        Failure{"update", "kill", 2, 7},
        Failure{"update range", "kill once", 0, 7, -1, "", folder.path + "/once"},
        Failure{"gather", "kill", 2, -1}, Failure{"gather", "hang", 2, -1}}) {
    SCOPED_TRACE(failure.point + ", " + failure.how);
    Follower follower;
    const auto call = make_call<&failing_dense_problem>(failure);
    TrainingProblem problem = dense_problem();
    TrainingControl control;
    control.observers.push_back(&follower);
    const TrainingResult result = train(call, problem.network, problem.data, options, control);
    EXPECT_EQ(result.digest, one.digest);
    EXPECT_EQ(result.iterations.back().chain, one.iterations.back().chain);
    ASSERT_EQ(losses(follower).size(), 1u);
    if (failure.worker > 0) {
      EXPECT_EQ(losses(follower)[0].worker, failure.worker);
    }
  }
}

}  // namespace
}  // namespace lockstep
