// Trainings by the workers of an open pool: the same bits, and the pool is unchanged afterwards.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/spmd.h"
#include "tests/train/recovery.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::long_options;
using testing::losses;

using Notices = std::vector<std::string>;

struct Listener : testing::Follower {
  void notice(const std::string& text) override { notices.push_back(text); }
  Notices notices;
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

// The first offset, from `from` on, at which the memory shared with the pool's workers is in use;
// -1: none.
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
  const int64_t before = reserved(pool);
  for (const int64_t workers : {3, 2}) {
    Listener listener;
    const TrainingResult result = run(long_options(workers), listener);
    expect_undisturbed(result, listener, 60);
    EXPECT_TRUE(losses(listener).empty());
    EXPECT_EQ(listener.notices,
              Notices{std::to_string(workers) + " workers of the open pool compute"});
    const auto computed = pids_of(listener);
    EXPECT_EQ(computed.size(), static_cast<size_t>(workers));
    for (const int64_t pid : computed) EXPECT_EQ(pids.count(pid), 1u) << pid;
    EXPECT_EQ(result.workers.size(), static_cast<size_t>(workers));
  }
  EXPECT_EQ(pids_of(pool), pids);
  EXPECT_GT(reserved(pool), before);
  EXPECT_EQ(first_used(pool, before), -1) << "memory that the training shared was kept";
}

TEST(TrainingPools, ASmallerOneComputesWithWhatItHas) {
  Pool pool({.workers = 2});
  TrainingOptions options = long_options(5);
  options.workers.load = {3, 1, 1, 1, 1};
  Listener listener;
  const TrainingResult result = run(options, listener);
  expect_undisturbed(result, listener, 60);
  ASSERT_EQ(result.workers.size(), 2u);
  EXPECT_GT(result.workers[0].shards, 2 * result.workers[1].shards);
  options.workers.load = {0, 0, 1, 1, 1};  // no worker with a load is present
  Listener other;
  const TrainingResult even = run(options, other);
  EXPECT_EQ(even.digest, result.digest);
  EXPECT_LT(even.workers[0].shards, 1.5 * static_cast<double>(even.workers[1].shards));
  options.workers.load = {1, 1, 1};
  EXPECT_THROW(run(options, other), InvalidArgument);
}

std::vector<int>& cores_seen() {
  static std::vector<int> cores;
  return cores;
}

TrainingProblem problem_that_looks_at_its_cores() {
  cores_seen() = own_cores();
  return testing::law_problem();
}

// A training's threads use the processors that its options request, whatever the pool's options
// are.
TEST(TrainingPools, GiveTrainingsTheirProcessors) {
  if (available_cores() < 2) GTEST_SKIP() << "there is one processor";
  Pool pool({.workers = 2});
  const auto look = [] { return own_cores(); };
  const auto before = pool.submit_to(0, look).get();
  EXPECT_EQ(before.size(), 1u);
  TrainingOptions options = long_options(1, 1);
  options.threads = 2;
  const auto call = make_call<&problem_that_looks_at_its_cores>();
  TrainingProblem problem = testing::law_problem();
  train(call, problem.network, problem.data, options);
  EXPECT_EQ(pool.submit_to(0, [] { return cores_seen(); }).get().size(), 2u);
  EXPECT_EQ(pool.submit_to(0, look).get(), before);
}

// Two simultaneous trainings that each need all workers run one after the other.
TEST(TrainingPools, ServeSeveralTrainings) {
  Pool pool({.workers = 3});
  std::vector<std::thread> threads;
  std::array<Digest, 4> digests;
  for (size_t t = 0; t < digests.size(); ++t) {
    threads.emplace_back([&, t] {
      Listener listener;
      digests[t] = run(long_options(3, 5), listener).digest;
    });
  }
  const auto indexes = spmd(pool, [](Spmd& block) {
    block.barrier();
    return block.index();
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(indexes, (std::vector<int>{0, 1, 2}));
  for (const Digest& digest : digests) EXPECT_EQ(digest, testing::undisturbed(5).digest);
}

// A training does not wait for workers with long tasks. These join when they are free.
TEST(TrainingPools, BeginWithoutBusyWorkers) {
  const auto rest = [](double seconds) {
    for (const TimeLimit limit(seconds); !limit.reached();) {
      check_cancelled();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  Pool pool({.workers = 2});
  const auto busy = pool.submit_to(1, rest, 60.0);
  Listener listener;
  size_t began_with = 0;
  listener.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration == 1) began_with = listener.present.size();
    if (r.iteration == 20) busy.cancel();
    if (r.iteration == 20) busy.wait();
    if (r.iteration > 20 && listener.present.size() < 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  expect_undisturbed(run(long_options(2), listener), listener, 60);
  EXPECT_EQ(listener.present.size(), 2u);
  EXPECT_EQ(listener.notices,
            (Notices{"2 workers of the open pool compute",
                     "the pool's workers 1 have other tasks: the training begins without them"}));
  // It computed only the iterations after its task.
  EXPECT_EQ(began_with, 1u);

  // If all workers are busy, the training can be stopped.
  const auto all = pool.submit_on_all(rest, 60.0);
  const auto call = make_call<&testing::law_problem>();
  TrainingProblem problem = testing::law_problem();
  TrainingControl control;
  const TimeLimit patience(0.3);
  control.interrupted = [&] { return patience.reached(); };
  EXPECT_THROW(train(call, problem.network, problem.data, long_options(2), control), Cancelled);
  cancel_all(all);
}

TEST(TrainingPools, OfThreadsAreNotUsed) {
  Pool pool({.workers = 2, .threads = true});
  Listener listener;
  expect_undisturbed(run(long_options(2), listener), listener, 60);
  EXPECT_EQ(listener.notices, Notices{});
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

TEST(TrainingPools, AreCompleteAgainAfterKills) {
  Pool pool({.workers = 3});
  Listener listener;
  listener.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration % 40 == 20) kill(listener.first_present(), SIGKILL);
  };
  expect_undisturbed(run(long_options(3), listener), listener, 60);
  EXPECT_EQ(losses(listener).size(), 6u);
  EXPECT_EQ(pids_of(pool).size(), 3u);
}

// However a training ends, its workers are free afterwards.
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
    if (r.iteration == 100) pool.resize(3);
    // Does not wait in a loop, because this thread also handles joining workers.
    if (r.iteration >= 100 && listener.present.size() < 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (r.iteration == 230) pool.resize(1);
  };
  expect_undisturbed(run(long_options(3), listener), listener, 60);
  EXPECT_EQ(losses(listener).size(), 1u);
  EXPECT_EQ(listener.present.size(), 3u) << "none came when the pool had grown again";
  EXPECT_EQ(listener.notices,
            (Notices{"3 workers of the open pool compute", "the pool has no worker 2 any more"}));
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

TrainingProblem problem_of_the_environment() {
  const char* const value = std::getenv("LOCKSTEP_TEST_WORKER");
  if (value != nullptr) throw DataError(value);
  return testing::law_problem();
}

TEST(TrainingPools, OpenedForATrainingHaveItsEnvironmentAndLimit) {
  const auto call = make_call<&problem_of_the_environment>();
  TrainingProblem problem = call();
  TrainingOptions options = long_options(1);
  options.workers.environment = {"LOCKSTEP_TEST_OTHER=", "LOCKSTEP_TEST_WORKER=a=b"};
  try {
    train(call, problem.network, problem.data, options);
    FAIL() << "the worker does not have it";
  } catch (const DataError& e) {
    EXPECT_STREQ(e.what(), "worker 1: a=b");
  }
#if !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)  // sanitizers need additional memory
  options.workers.environment.clear();
  options.workers.memory_mib = 1;
  try {
    train(call, problem.network, problem.data, options);
    FAIL() << "a mebibyte was enough";
  } catch (const WorkerLost& e) {
    EXPECT_NE(std::string(e.what()).find("workers end before they are ready"), std::string::npos)
        << e.what();
  }
#endif
}

// The last output of a lost worker may explain its loss.
TrainingProblem talkative_problem() {
  if (task_worker() == 1) {
    std::puts("here it ends");
    _exit(3);
  }
  return testing::law_problem();
}

TEST(TrainingPools, ReportTheOutputOfALostWorker) {
  struct : Listener {
    void notice(const std::string& text) override {
      Listener::notice(text);
      throw DataError("seen");
    }
  } listener;
  const auto call = make_call<&talkative_problem>();
  TrainingProblem problem = testing::law_problem();
  TrainingControl control;
  control.observers.push_back(&listener);
  EXPECT_THROW(train(call, problem.network, problem.data, long_options(2), control), DataError);
  EXPECT_EQ(listener.notices, Notices{"worker 2 printed last: here it ends"});
}

}  // namespace
}  // namespace lockstep
