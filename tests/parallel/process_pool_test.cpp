// Pools of processes: tasks that harm their worker, and the effect on other tasks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/pool/pool.h"
#include "tests/parallel/pools.h"

namespace lockstep {
namespace {

using namespace testing_pools;

// Workers that cannot start are not restarted without pause, and waiting callers get an error.
TEST(ProcessPool, WorkersThatNeverGetReadyAreReported) {
  Pool pool({.workers = 1, .memory_bytes = 1 << 20});
  const auto before = TimeLimit::Clock::now();
  const auto task = pool.submit<&add>(1, 2);
  ASSERT_TRUE(task.wait_for(60));
  EXPECT_NE(failure_of<WorkerLost>(task).find("[pool] workers end before they are ready: "),
            std::string::npos)
      << task.error();
  // Every worker would hit the same limit, so no other one is started.
  EXPECT_LT(TimeLimit::Clock::now() - before, std::chrono::seconds(2));
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kMemory = 0;  // sanitizers need additional memory
#else
constexpr uint64_t kMemory = uint64_t{1} << 30;
#endif

int depth(int n) { return n == 0 ? 0 : 1 + depth(n - 1) % 1000003; }

// After any failure of a task: its future reports it, other tasks are unaffected, and the pool is
// complete again.
TEST(ProcessPool, TasksDoNotHarmOtherTasks) {
  Pool pool({.workers = 3, .grace = 0.2, .memory_bytes = kMemory});
  ASSERT_TRUE(await([&] { return whole(pool); }));
  std::vector<std::pair<std::string, Future<void>>> bad{
      {"exited with status 3", pool.submit([] { std::exit(3); })},
      {"exited with status 4", pool.submit([] { _exit(4); })},
      {"was killed by signal 6 (SIGABRT)", pool.submit([] { std::abort(); })},
      {"was killed by signal 9 (SIGKILL)", pool.submit([] { kill(getpid(), SIGKILL); })},
      {"was killed by signal 11 (SIGSEGV)", pool.submit([] {
         volatile int n = 1000000000;
         depth(n);
       })},
  };
  std::vector<Future<int64_t>> good;
  for (int64_t i = 0; i < 200; ++i) good.push_back(pool.submit<&add>(i, 1));
  for (const auto& [how, future] : bad) {
    const std::string text = failure_of<WorkerLost>(future);
    // Sanitizers end a process with a stack overflow in their own way.
    const std::string end = kMemory > 0 ? how : "";
    EXPECT_NE(text.find(end + " while it ran task " + std::to_string(future.number())),
              std::string::npos)
        << text;
  }
  for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(good[static_cast<size_t>(i)].get(), i + 1);
  EXPECT_TRUE(await([&] { return whole(pool); }, 1)) << "not whole after a second";
  if (kMemory > 0) {
    const auto greedy = pool.submit([] {
      const std::vector<char> memory(size_t{2} << 30, 1);
      return memory[memory.size() / 2] == 1;
    });
    EXPECT_TRUE(failure_of<Error>(greedy).starts_with("there is not enough memory"))
        << failure_of<Error>(greedy);
  }
  // A task that does not stop is ended.
  const auto endless = pool.submit([] {
    for (std::atomic<int> i{0};; ++i) {
    }
  });
  ASSERT_TRUE(await([&] { return endless.state() == TaskState::running; }));
  endless.cancel();
  EXPECT_TRUE(endless.wait_for(2));
  EXPECT_EQ(endless.state(), TaskState::cancelled);
  EXPECT_TRUE(await([&] { return whole(pool); }, 1));
  EXPECT_EQ(pool.submit<&add>(2, 2).get(), 4);
}

TEST(ProcessPool, RetriesAreForLostWorkersAlone) {
  Pool pool({.workers = 1});
  const std::string file = ::testing::TempDir() + "lockstep_attempts_" + std::to_string(getpid());
  const auto attempt = [](const std::string& path, bool dies) {
    FILE* const f = std::fopen(path.c_str(), "a");
    std::fputc('x', f);
    std::fclose(f);
    FILE* const again = std::fopen(path.c_str(), "r");
    int n = 0;
    while (std::fgetc(again) == 'x') ++n;
    std::fclose(again);
    if (n < 3 && dies) kill(getpid(), SIGKILL);
    if (!dies) throw DataError("attempt " + std::to_string(n));
    return n;
  };
  EXPECT_EQ(pool.submit_with({.retries = 2}, attempt, file, true).get(), 3);
  std::remove(file.c_str());
  EXPECT_EQ(failure_of<DataError>(pool.submit_with({.retries = 5}, attempt, file, false)),
            "attempt 1");
  std::remove(file.c_str());
  EXPECT_NE(
      failure_of<WorkerLost>(pool.submit_with({.retries = 1}, attempt, file, true)).find("SIGKILL"),
      std::string::npos);
  std::remove(file.c_str());
}

TEST(ProcessPool, DiariesHoldTheOutputOfTasks) {
  Pool pool({.workers = 2});
  const auto quiet = pool.submit([] {});
  const auto both = pool.submit([] {
    std::printf("printed\n");
    std::cout << "streamed\n";
    std::cerr << "warned\n";
  });
  const auto dies = pool.submit([] {
    std::printf("last words\n");
    std::abort();
  });
  const auto failing = pool.submit([] {
    std::puts("before");
    throw DataError("x");
  });
  const auto running = pool.submit([] {
    std::puts("so far");
    for (;;) {
      check_cancelled();
      sleep_seconds(0.01);
    }
  });
  both.wait();
  const std::string text = both.diary();
  for (const char* part : {"printed\n", "streamed\n", "warned\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  dies.wait();
  EXPECT_EQ(dies.diary(), "last words\n");
  failing.wait();
  EXPECT_EQ(failing.diary(), "before\n");
  EXPECT_TRUE(await([&] { return running.diary() == "so far\n"; })) << running.diary();
  running.cancel();
  running.wait();
  EXPECT_EQ(quiet.diary(), "");
}

// A task that prints without end must not fill memory.
TEST(ProcessPool, DiariesKeepTheirEnds) {
  Pool pool({.workers = 1, .grace = 0.1});
  const auto chatty = pool.submit([] {
    for (int line = 0; !task_cancelled(); ++line) std::printf("line %d\n", line);
  });
  // The bytes that were printed, and the bytes of memory that they take.
  const auto bytes = [&] {
    struct stat about {};
    const std::string path = "/proc/" + std::to_string(pool.workers()[0].pid) + "/fd/1";
    if (stat(path.c_str(), &about) != 0) return std::pair<int64_t, int64_t>(0, 1);
    return std::pair<int64_t, int64_t>(about.st_size, about.st_blocks * 512);
  };
  EXPECT_TRUE(
      await([&] { return bytes().first > 16 << 20 && bytes().second < bytes().first / 2; }));
  const std::string diary = chatty.diary();
  EXPECT_LE(diary.size(), 65536u);
  EXPECT_GT(diary.size(), 60000u);
  chatty.cancel();
  EXPECT_TRUE(chatty.wait_for(5));
  EXPECT_EQ(pool.submit<&add>(1, 1).get(), 2);
}

// A task that no worker can receive must not end other tasks.
TEST(ProcessPool, ArgumentsThatAreTooLargeForAWorkerFailTheirTask) {
  if (kMemory == 0) GTEST_SKIP() << "memory is not limited under sanitizers";
  Pool pool({.workers = 2, .memory_bytes = uint64_t{256} << 20});
  const std::vector<char> large(size_t{200} << 20, 1);
  const auto task = pool.submit([](const std::vector<char>& v) { return v.size(); }, large);
  ASSERT_TRUE(task.wait_for(60));
  EXPECT_EQ(task.state(), TaskState::failed);
  EXPECT_NE(task.error().find("before it could begin task 1"), std::string::npos) << task.error();
  EXPECT_EQ(pool.submit<&add>(1, 1).get(), 2);
}

// Tasks that were sent ahead of time may move to another worker.
TEST(ProcessPool, IdleWorkersTakeTasksFromBusyOnes) {
  Pool pool({.workers = 2});
  ASSERT_TRUE(await([&] { return whole(pool); }));
  // Short tasks first, so that workers get several at a time.
  std::vector<Future<int64_t>> short_ones;
  for (int64_t i = 0; i < 500; ++i) short_ones.push_back(pool.submit<&add>(i, i));
  fetch_all(short_ones);
  std::vector<Future<void>> mixed;
  const auto before = TimeLimit::Clock::now();
  mixed.push_back(pool.submit_to(0, doze, 0.8));
  mixed.push_back(
      pool.submit_to(0, doze, 0.001));  // waits for worker 0 without delaying the others
  for (int i = 0; i < 40; ++i) mixed.push_back(pool.submit(doze, 0.001));
  for (size_t i = 2; i < mixed.size(); ++i) mixed[i].wait();
  EXPECT_LT(std::chrono::duration<double>(TimeLimit::Clock::now() - before).count(), 0.7)
      << "some waited behind the long one";
  mixed[0].wait();
}

// Each task ends in exactly one state.
TEST(ProcessPool, AThousandFuturesWithCancelsAndKills) {
  Pool pool({.workers = 4, .grace = 0.05});
  std::mt19937 random(3);
  std::vector<Future<int64_t>> futures;
  std::vector<std::atomic<int>> told(1000);
  for (int64_t i = 0; i < 1000; ++i) {
    futures.push_back(pool.submit_with(
        {.priority = static_cast<int>(random() % 3), .retries = static_cast<int>(random() % 2)},
        [](int64_t n, int64_t us, bool stubborn) {
          for (const TimeLimit limit(static_cast<double>(us) * 1e-6); !limit.reached();) {
            if (!stubborn) check_cancelled();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
          return n;
        },
        i, static_cast<int64_t>(random() % 4000), random() % 50 == 0));
    futures.back().then([&told, i](const Future<int64_t>&) { ++told[static_cast<size_t>(i)]; });
  }
  std::thread killer([&] {
    std::mt19937 choice(5);
    for (int k = 0; k < 25; ++k) {
      sleep_seconds(0.02);
      const auto workers = pool.workers();
      const int64_t pid = workers[choice() % workers.size()].pid;
      if (pid > 0) kill(static_cast<pid_t>(pid), SIGKILL);
    }
  });
  for (int k = 0; k < 150; ++k) {
    futures[random() % 1000].cancel();
    sleep_seconds(0.002);
  }
  killer.join();
  std::map<TaskState, int> count;
  for (size_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(futures[i].wait_for(kLimit)) << i << " " << to_string(futures[i].state());
    const TaskState state = futures[i].state();
    ++count[state];
    if (state == TaskState::finished) {
      EXPECT_EQ(futures[i].get(), static_cast<int64_t>(i));
    }
    if (state == TaskState::failed) {
      EXPECT_THROW(futures[i].get(), WorkerLost);
    }
    if (state == TaskState::cancelled) {
      EXPECT_THROW(futures[i].get(), Cancelled);
    }
  }
  std::printf("%d finished, %d failed with their workers, %d were cancelled\n",
              count[TaskState::finished], count[TaskState::failed], count[TaskState::cancelled]);
  EXPECT_EQ(count[TaskState::queued] + count[TaskState::running], 0);
  EXPECT_GT(count[TaskState::finished], 500);
  EXPECT_GT(count[TaskState::cancelled], 0);
  EXPECT_TRUE(await([&] {
    return std::all_of(told.begin(), told.end(), [](const std::atomic<int>& n) { return n == 1; });
  }));
  EXPECT_TRUE(await([&] { return whole(pool); }, 1));
}

TEST(ProcessPool, LeavesNothingBehind) {
  std::vector<int64_t> pids;
  {
    Pool pool({.workers = 3});
    ASSERT_TRUE(await([&] { return whole(pool); }));
    const auto running = pool.submit(doze, 60.0);
    for (const auto& w : pool.workers()) pids.push_back(w.pid);
  }
  ASSERT_EQ(pids.size(), 3u);
  for (const int64_t pid : pids) EXPECT_NE(kill(static_cast<pid_t>(pid), 0), 0) << pid;
}

TEST(ProcessPool, TheDefaultPoolIsTheOneThatIsOpen) {
  std::vector<std::string> notices;
  const auto notice = [&](const std::string& text) { notices.push_back(text); };
  {
    Pool pool({.workers = 1});
    EXPECT_EQ(&default_pool(notice), &pool);
  }
  EXPECT_TRUE(notices.empty());
  Pool& own = default_pool(notice);
  EXPECT_EQ(&default_pool(notice), &own);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0], "a pool of " + std::to_string(own.size()) + " worker processes was opened");
  EXPECT_EQ(own.submit<&add>(1, 2).get(), 3);
}

}  // namespace
}  // namespace lockstep
