// Trainings by the workers of a pool that is open: the same bits, and the pool is as it was.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/pool.h"
#include "tests/train/recovery.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::long_options;
using testing::losses;

struct Listener : testing::Follower {
  void notice(const std::string& text) override { notices.push_back(text); }
  std::vector<std::string> notices;
};

TrainingResult run(const TrainingOptions& options, Listener& listener) {
  const auto call = make_call<&testing::law_problem>();
  TrainingProblem problem = testing::law_problem();
  TrainingControl control;
  control.observers.push_back(&listener);
  return train(call, problem.network, problem.data, options, control);
}

std::set<int64_t> pids_of(Pool& pool) {
  std::set<int64_t> pids;
  const auto futures = pool.submit_on_all([] { return static_cast<int64_t>(getpid()); });
  for (const auto& future : futures) pids.insert(future.get());
  return pids;
}

std::set<int64_t> pids_of(const Listener& listener) {
  std::set<int64_t> pids;
  for (const auto& [number, pid] : listener.present) pids.insert(pid);
  return pids;
}

// Where, from an offset on, the memory that the pool shares with its workers is in use; -1:
// nowhere.
int64_t first_used(const Pool& pool, int64_t from) {
  return lseek(pool.core()->memory().descriptor(), from, SEEK_DATA);
}

int64_t reserved(const Pool& pool) {
  struct stat about {};
  fstat(pool.core()->memory().descriptor(), &about);
  return about.st_size;
}

TEST(TrainingPools, TheOpenOneComputes) {
  Pool pool({.workers = 3});
  const auto pids = pids_of(pool);
  const auto cores = pool.submit([] { return own_cores(); }).get();
  const int64_t before = reserved(pool);
  for (const int64_t workers : {3, 2}) {
    Listener listener;
    const TrainingResult result = run(long_options(workers), listener);
    expect_undisturbed(result, listener, 60);
    EXPECT_TRUE(losses(listener).empty());
    ASSERT_EQ(listener.notices.size(), 1u);
    EXPECT_EQ(listener.notices[0],
              std::to_string(workers) + " worker processes of the open pool compute");
    for (const int64_t pid : pids_of(listener)) EXPECT_EQ(pids.count(pid), 1u) << pid;
    EXPECT_EQ(result.workers.size(), static_cast<size_t>(workers));
  }
  EXPECT_EQ(pids_of(pool), pids);
  EXPECT_EQ(pool.submit_to(0, [] { return own_cores(); }).get(), cores);
  EXPECT_GT(reserved(pool), before);
  EXPECT_EQ(first_used(pool, before), -1) << "memory that the training shared was kept";
}

TEST(TrainingPools, ASmallerOneComputesWithWhatItHas) {
  Pool pool({.workers = 2});
  TrainingOptions options = long_options(5);
  options.worker_load = {3, 1, 1, 1, 1};
  Listener listener;
  const TrainingResult result = run(options, listener);
  expect_undisturbed(result, listener, 60);
  ASSERT_EQ(result.workers.size(), 2u);
  EXPECT_GT(result.workers[0].shards, 2 * result.workers[1].shards);
  options.worker_load = {0, 0, 1, 1, 1};
  EXPECT_THROW(run(options, listener), InvalidArgument);
}

TEST(TrainingPools, OfThreadsComputeNothing) {
  Pool pool({.workers = 2, .threads = true});
  Listener listener;
  expect_undisturbed(run(long_options(2), listener), listener, 60);
  ASSERT_EQ(listener.notices.size(), 1u);
  EXPECT_EQ(listener.notices[0], "2 worker processes were started");
}

// Other tasks come before and after.
TEST(TrainingPools, TakeTurnsWithOtherTasks) {
  const auto rest = [](int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return milliseconds;
  };
  Pool pool({.workers = 2});
  const auto before = pool.submit_to(1, rest, 300);
  std::vector<Future<int>> during;
  Listener listener;
  listener.on_iteration = [&](const IterationRecord& r) {
    EXPECT_EQ(before.state(), TaskState::finished);
    if (r.iteration % 100 == 0) during.push_back(pool.submit(rest, 1));
  };
  expect_undisturbed(run(long_options(2), listener), listener, 60);
  EXPECT_EQ(fetch_all(during), (std::vector<int>{1, 1}));
}

TEST(TrainingPools, AreWholeAgainAfterKills) {
  Pool pool({.workers = 3});
  Listener listener;
  listener.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration % 40 == 20) kill(listener.present.begin()->second, SIGKILL);
  };
  expect_undisturbed(run(long_options(3), listener), listener, 60);
  EXPECT_EQ(losses(listener).size(), 6u);
  EXPECT_EQ(pids_of(pool).size(), 3u);
}

// Whatever ends a training, its workers are free.
TEST(TrainingPools, AreFreeWhenATrainingIsEnded) {
  Pool pool({.workers = 2});
  const auto pids = pids_of(pool);
  for (const int64_t at : {1, 7}) {
    Listener listener;
    listener.on_iteration = [&](const IterationRecord& r) {
      if (r.iteration == at) throw DataError("enough");
    };
    EXPECT_THROW(run(long_options(2), listener), DataError);
    EXPECT_EQ(pids_of(pool), pids) << "a worker had to be ended";
  }
  Listener listener;
  expect_undisturbed(run(long_options(2), listener), listener, 60);
}

TEST(TrainingPools, MayShrink) {
  Pool pool({.workers = 3});
  Listener listener;
  listener.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration == 20) pool.resize(1);
    if (r.iteration == 60) kill(listener.present.at(3), SIGKILL);
  };
  expect_undisturbed(run(long_options(3), listener), listener, 60);
  EXPECT_EQ(losses(listener).size(), 1u);
  ASSERT_EQ(listener.notices.size(), 2u);
  EXPECT_EQ(listener.notices[1], "the pool has no worker 2 any more");
  EXPECT_EQ(pids_of(pool).size(), 1u);
}

TEST(TrainingPools, ThatCloseEndTheTraining) {
  std::optional<Pool> pool(PoolOptions{.workers = 2});
  Listener listener;
  listener.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration == 20) pool.reset();
  };
  try {
    run(long_options(2), listener);
    FAIL() << "it went on";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[workers] the pool has no workers left for the training");
  }
}

// What a worker printed before it was lost says why, perhaps.
TrainingProblem talkative_problem() {
  if (task_worker() == 1) {
    std::puts("here it ends");
    _exit(3);
  }
  return testing::law_problem();
}

TEST(TrainingPools, SayWhatALostWorkerPrinted) {
  struct : Listener {
    void notice(const std::string& text) override {
      Listener::notice(text);
      if (notices.size() == 2) throw DataError("seen");
    }
  } listener;
  const auto call = make_call<&talkative_problem>();
  TrainingProblem problem = testing::law_problem();
  TrainingControl control;
  control.observers.push_back(&listener);
  EXPECT_THROW(train(call, problem.network, problem.data, long_options(2), control), DataError);
  ASSERT_EQ(listener.notices.size(), 2u);
  EXPECT_EQ(listener.notices[1], "worker 2 printed last: here it ends");
}

}  // namespace
}  // namespace lockstep
