#include "lockstep/base/threads/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/base/waiting.h"

namespace lockstep {
namespace {

TEST(ThreadPool, RunsTheBodyOnceOnEveryThread) {
  for (int size : {1, 2, 3, 7}) {
    ThreadPool pool(size);
    EXPECT_EQ(pool.size(), size);
    std::vector<int> calls(static_cast<size_t>(size), 0);  // not atomic: run() orders everything
    std::vector<std::thread::id> ids(static_cast<size_t>(size));
    for (int round = 0; round < 300; ++round) {
      pool.run([&](int thread) {
        ++calls[static_cast<size_t>(thread)];
        ids[static_cast<size_t>(thread)] = std::this_thread::get_id();
      });
    }
    for (int count : calls) EXPECT_EQ(count, 300);
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    for (int thread = 1; thread < size; ++thread)
      EXPECT_NE(ids[static_cast<size_t>(thread)], ids[0]);
  }
}

TEST(ThreadPool, WakesHelpersThatHaveGoneToSleep) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(testing::comes_to_rest([] { return true; }));
    pool.run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 60);
}

TEST(ThreadPool, WaitsForTheSlowestThread) {
  ThreadPool pool(3);
  std::vector<int> done(3, 0);
  pool.run([&](int thread) {
    std::this_thread::sleep_for(std::chrono::milliseconds(thread * 5));
    done[static_cast<size_t>(thread)] = 1;
  });
  EXPECT_EQ(done, (std::vector<int>{1, 1, 1}));
}

TEST(ThreadPool, RethrowsTheErrorOfTheLowestThreadAfterAllHaveReturned) {
  ThreadPool pool(4);
  std::atomic<int> returned{0};
  try {
    pool.run([&](int thread) {
      std::this_thread::sleep_for(std::chrono::milliseconds(4 - thread));
      ++returned;
      if (thread >= 2) throw std::runtime_error("thread " + std::to_string(thread));
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "thread 2");
  }
  EXPECT_EQ(returned, 4);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });  // the pool still works
  EXPECT_EQ(calls, 4);
}

TEST(ThreadPool, ForEachRunsEveryIndexOnce) {
  for (int size : {1, 2, 5}) {
    ThreadPool pool(size);
    for (int64_t n : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
      std::atomic<bool> thread_in_range{true};
      pool.for_each(n, [&](int64_t i, int thread) {
        ++calls[static_cast<size_t>(i)];
        if (thread < 0 || thread >= size) thread_in_range = false;
      });
      for (const auto& count : calls) ASSERT_EQ(count, 1);
      EXPECT_TRUE(thread_in_range);
    }
  }
}

TEST(ThreadPool, ForEachUsesAllThreadsWhenTheWorkIsLong) {
  ThreadPool pool(2);
  std::vector<int> counts(2, 0);
  pool.for_each(40, [&](int64_t, int thread) {
    ++counts[static_cast<size_t>(thread)];
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[0] + counts[1], 40);
}

TEST(ThreadPool, ForEachRethrowsTheLowestIndexWhoeverIsFaster) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> begun{0};
    try {
      pool.for_each(1000, [&](int64_t i, int) {
        ++begun;
        if (i == 3) std::this_thread::sleep_for(std::chrono::microseconds(200));
        if (i >= 3) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      ASSERT_STREQ(error.what(), "3");
    }
    EXPECT_LE(begun, 7);  // the three successful calls and one failure for each thread
  }
}

TEST(ThreadPool, UsesSomeOfItsThreads) {
  ThreadPool pool(4);
  EXPECT_EQ(pool.used(), 4);
  for (int round = 0; round < 3000; ++round) {
    const int used = round % 7 == 0 ? 1 : round * 5 % 4 + 1;
    pool.use(used);
    ASSERT_EQ(pool.used(), used);
    std::atomic<int> calls{0};
    std::array<std::atomic<int>, 4> by_thread{};
    for (int again = 0; again <= round % 3; ++again) {
      pool.run([&](int thread) {
        ++calls;
        ++by_thread[static_cast<size_t>(thread)];
      });
    }
    ASSERT_EQ(calls, used * (round % 3 + 1));
    for (int thread = 0; thread < 4; ++thread) {
      ASSERT_EQ(by_thread[static_cast<size_t>(thread)], thread < used ? round % 3 + 1 : 0);
    }
    // Some threads are late to notice that they are not used.
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pool.use(99);
  EXPECT_EQ(pool.used(), 4);
  pool.use(1);  // ends while three threads sleep
}

TEST(ThreadPool, RefusesSizesThatCannotBeAndRunsWithinRuns) {
  EXPECT_THROW(ThreadPool(0), InvalidArgument);
  EXPECT_THROW(ThreadPool(-1), InvalidArgument);
  EXPECT_THROW(ThreadPool(1025), InvalidArgument);
  ThreadPool pool(2);
  EXPECT_THROW(pool.run([&](int thread) {
    if (thread == 0) pool.run([](int) {});
  }),
               InvalidArgument);
  EXPECT_GE(available_cores(), 1);
}

TEST(ThreadPool, StartsAndStopsWithoutEverRunning) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(3);
}

// Information only. With a limit the test would fail on a machine that is busy with other work.
TEST(ThreadPool, LatencyOfAnEmptyRunIsPrinted) {
  ThreadPool pool(2);
  const int rounds = 5000;
  for (int i = 0; i < 100; ++i) pool.run([](int) {});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) pool.run([](int) {});
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  std::printf("an empty run on 2 threads takes %.2f us\n", spent.count() / rounds);
}

}  // namespace
}  // namespace lockstep
