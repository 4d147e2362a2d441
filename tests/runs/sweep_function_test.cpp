// Sweeps in C++: a user's function as trial, in worker processes.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "lockstep/base/os/file.h"
#include "lockstep/runs/sweeps/sweep.h"
#include "lockstep/train/trainer.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using testing::refusal;
using SweepFunction = testing::WithFolder;

// Some trials end their worker once, by chance of their number.
double with_lost_workers(const SweepTrial& trial) {
  const std::string mark = join_path(trial.folder, "began");
  const bool again = local_files().exists(mark);
  write_atomically(local_files(), mark, "");
  if (trial.index % 4 == 0 && !again) kill(getpid(), SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(trial.index * 7 % 5));
  return std::abs(std::log10(trial.number("rate")) + 2) + 1.0 / double(trial.budget);
}

double that_fails(const SweepTrial& trial) {
  if (trial.number("width") == 1) throw InvalidArgument("too narrow");
  if (trial.number("width") == 2) throw Diverged("the loss is infinite");
  if (trial.number("width") == 3) return NAN;
  return trial.number("width") + double(trial.seed);
}

double that_finds_a_full_disk(const SweepTrial& trial) {
  if (trial.index == 2) throw FileError("the disk is full");
  return 1;
}

SweepSettings settings(const std::string& folder) {
  SweepSettings s{.folder = folder, .budget = 4};
  s.options.trials = 12;
  s.options.reduction = 2;
  s.options.goal = "minimize";
  s.options.parameters = {sweep_range("rate", 1e-4, 1, true), sweep_integers("width", 1, 9)};
  return s;
}

std::string table(const std::string& folder) {
  return read_text(local_files(), folder + "/trials.csv");
}

TEST_F(SweepFunction, GivesOneTableForAnyWorkers) {
  for (const int workers : {1, 3}) {
    Pool pool({.workers = workers});
    const SweepOutcome outcome =
        Sweep(settings("by" + std::to_string(workers))).run<&with_lost_workers>(pool);
    EXPECT_TRUE(outcome.finished);
    ASSERT_EQ(outcome.trials.size(), 12u);
    EXPECT_GT(outcome.best, 0);
    EXPECT_EQ(outcome.trials[static_cast<size_t>(outcome.best - 1)].budget, 4);
  }
  EXPECT_EQ(table("by1"), table("by3"));
}

TEST_F(SweepFunction, FailedTrialsComeLast) {
  SweepSettings s = settings("failing");
  s.options.method = "grid";
  s.options.trials = 0;
  s.options.repeats = 2;
  s.options.parameters = {sweep_values("width", std::vector<int64_t>{1, 2, 3, 4, 5})};
  Pool pool({.workers = 2});
  const SweepOutcome outcome = Sweep(s).run<&that_fails>(pool);
  std::vector<std::string> states;
  for (const auto& trial : outcome.trials) states.push_back(trial.state);
  EXPECT_EQ(states, (std::vector<std::string>{"unbuildable", "diverged", "diverged", "finished",
                                              "finished"}));
  EXPECT_EQ(outcome.best, 4);
  EXPECT_EQ(outcome.trials[3].value, 4.5);  // seeds 0 and 1
  EXPECT_EQ(outcome.trials[0].reason, "too narrow");
}

TEST_F(SweepFunction, AFaultOfTheMachineIsNotAResult) {
  Pool pool({.workers = 2});
  EXPECT_CONTAINS(
      refusal<FileError>([&] { Sweep(settings("full")).run<&that_finds_a_full_disk>(pool); }),
      "the disk is full");
  SweepSettings again = settings("full");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { Sweep(again).run<&with_lost_workers>(pool); }),
                  "contains a sweep");
  again.resume = true;
  EXPECT_TRUE(Sweep(again).run<&with_lost_workers>(pool).finished);
  again.options.trials = 15;
  EXPECT_EQ(Sweep(again).run<&with_lost_workers>(pool).trials.size(), 15u);
  again.options.trials = 9;
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { Sweep(again).run<&with_lost_workers>(pool); }),
                  "other options");
}

TEST_F(SweepFunction, OwnMethod) {
  // Each trial runs longer than the one before it, if that was better than 0.5.
  class Ladder : public SweepMethod {
   public:
    int64_t decisions() const override { return 3; }
    std::vector<int64_t> needs(int64_t k) const override {
      return k == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{k - 1};
    }
    SweepDecision decide(int64_t k, const std::vector<DecisionResults>& seen) const override {
      const double before = seen.empty() ? 0 : seen.front().trials.front().value;
      SweepDecision d{.what = "step"};
      d.starts.push_back({k + 1, {{"rate", before < 0.5 ? "0.01" : "0.1"}}});
      d.goals.push_back({k + 1, k + 1});
      return d;
    }
  };
  SweepSettings s = settings("ladder");
  s.method = std::make_shared<Ladder>();
  Pool pool({.workers = 2});
  const SweepOutcome outcome = Sweep(s).run<&with_lost_workers>(pool);
  ASSERT_EQ(outcome.trials.size(), 3u);
  EXPECT_EQ(outcome.trials[1].value, 1.5);
  EXPECT_EQ(outcome.best, 3);
}

TEST_F(SweepFunction, Refusals) {
  SweepSettings s = settings("s");
  s.options.goal.clear();
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { Sweep{s}; }), "the goal is missing");
  s = settings("");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { Sweep{s}; }), "has no name");
  const SweepTrial trial{.index = 3, .parameters = {{"a", "\"x\""}}};
  EXPECT_TRUE(trial.uses("a"));
  EXPECT_FALSE(trial.uses("b"));
  EXPECT_EQ(trial.text("a"), "x");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { trial.number("a"); }), "is not a number");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { trial.number("b"); }), "no parameter `b`");
}

}  // namespace
}  // namespace lockstep
