// Trainings whose workers are lent: they join and leave between iterations, with the same bits.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/pool.h"
#include "tests/train/recovery.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::long_options;
using testing::losses;
using Slots = std::vector<int>;

TrainingResult run(const TrainingOptions& options, testing::Follower& follower,
                   std::function<Slots()> slots, const Pool* pool = nullptr) {
  const auto call = make_call<&testing::law_problem>();
  TrainingProblem problem = testing::law_problem();
  TrainingControl control;
  control.observers.push_back(&follower);
  control.workers = std::move(slots);
  if (pool != nullptr) control.pool = pool->core();
  return train(call, problem.network, problem.data, options, control);
}

// The thread of the training also handles joining workers, so iterations only become slower.
void slow_down() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

int64_t left(const testing::Follower& follower) {
  int64_t count = 0;
  for (const WorkerChange& c : follower.changes) count += c.left ? 1 : 0;
  return count;
}

// The slots change every 40 iterations, also all at once.
TEST(LentWorkers, JoinAndLeaveBetweenIterations) {
  const std::vector<Slots> plan{{0}, {0, 1, 2}, {2}, {1}, {0, 1}, {0, 2}};
  Pool pool({.workers = 3});
  const auto pid = [] { return static_cast<int64_t>(getpid()); };
  std::vector<int64_t> pids;
  for (int i = 0; i < 3; ++i) pids.push_back(pool.submit_to(i, pid).get());
  testing::Follower follower;
  size_t now = 0;
  std::set<size_t> reached;
  bool other_task_ran = false;
  follower.on_iteration = [&](const IterationRecord& r) {
    now = static_cast<size_t>((r.iteration - 1) / 40);
    std::set<int64_t> wanted, present;
    for (const int slot : plan[now]) wanted.insert(pids[static_cast<size_t>(slot)]);
    for (const auto& [number, process] : follower.present) present.insert(process);
    if (present != wanted) return slow_down();
    reached.insert(now);
    // A worker that has left is free for others.
    if (now == 2 && !std::exchange(other_task_ran, true)) {
      EXPECT_EQ(pool.submit_to(0, pid).get(), pids[0]);
    }
  };
  const TrainingResult result = run(long_options(1), follower, [&] { return plan[now]; });
  expect_undisturbed(result, follower, 60);
  EXPECT_EQ(reached.size(), plan.size()) << "not all changes happened";
  EXPECT_TRUE(other_task_ran);
  EXPECT_TRUE(losses(follower).empty()) << "leaving counted as a loss";
  EXPECT_EQ(left(follower), 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pool.submit_to(i, pid).get(), pids[static_cast<size_t>(i)]);
  int64_t shards = 0;
  for (const WorkerSummary& w : result.workers) {
    EXPECT_FALSE(w.lost);
    EXPECT_GT(w.shards, 0) << w.worker;
    EXPECT_GT(w.iteration_seconds, 0) << w.worker;
    shards += w.shards;
  }
  EXPECT_GE(shards, 240);
}

// Two trainings pass the workers of one pool to each other, in both directions.
TEST(LentWorkers, PassFromOneTrainingToAnother) {
  Pool pool({.workers = 3});
  std::atomic<int> boundary{2};  // slots below it are the first training's
  std::array<Digest, 2> digests;
  std::array<int64_t, 2> changes{}, lost{};
  const auto train_part = [&](size_t t) {
    testing::Follower follower;
    follower.on_iteration = [&](const IterationRecord& r) {
      if (t == 0 && r.iteration % 50 == 0) boundary = 3 - boundary;
      slow_down();
    };
    const TrainingResult result = run(
        long_options(1), follower,
        [&, t] {
          Slots mine;
          for (int i = 0; i < 3; ++i) {
            if ((i < boundary) == (t == 0)) mine.push_back(i);
          }
          return mine;
        },
        &pool);
    digests[t] = result.digest;
    changes[t] = left(follower);
    lost[t] = static_cast<int64_t>(losses(follower).size());
  };
  std::thread other([&] { train_part(1); });
  train_part(0);
  other.join();
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(digests[t], testing::undisturbed(60).digest) << t;
    EXPECT_GT(changes[t], 0) << t;
    EXPECT_EQ(lost[t], 0) << t;
  }
}

TEST(LentWorkers, AreReplacedWhenTheyAreKilled) {
  Pool pool({.workers = 3});
  testing::Follower follower;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration % 40 == 20 && !follower.present.empty()) {
      kill(follower.first_present(), SIGKILL);
    }
    slow_down();
  };
  const TrainingResult result = run(long_options(1), follower, [&] {
    return follower.last % 40 < 22 ? Slots{0, 1} : Slots{1, 2};
  });
  expect_undisturbed(result, follower, 60);
  EXPECT_GE(losses(follower).size(), 4u);
  EXPECT_GT(left(follower), 0);
}

TEST(LentWorkers, NeedAnOpenPoolAndNoLoads) {
  testing::Follower follower;
  const auto all = [] { return Slots{0}; };
  EXPECT_THROW(run(long_options(1), follower, all), InvalidArgument);
  Pool pool({.workers = 1});
  TrainingOptions options = long_options(1);
  options.workers.load = {1};
  EXPECT_THROW(run(options, follower, all), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
