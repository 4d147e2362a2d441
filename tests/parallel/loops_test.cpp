// Loops and queues over pools.
#include "lockstep/parallel/pool/loops.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/pool/data_queue.h"
#include "tests/base/waiting.h"

namespace lockstep {
namespace {

using testing::kLimit;

class Loops : public ::testing::TestWithParam<bool> {
 protected:
  PoolOptions options(int workers) const { return {.workers = workers, .threads = GetParam()}; }
};

TEST_P(Loops, MapKeepsTheOrder) {
  Pool pool(options(3));
  for (const int64_t n : {0, 1, 2, 7, 1000}) {
    for (const int64_t chunk : {0, 1, 5}) {
      const auto all = parallel_map_with(
          {.chunk = chunk}, pool, n, [](int64_t i, int64_t factor) { return i * factor; }, 3);
      ASSERT_EQ(all.size(), static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], 3 * i);
    }
  }
  EXPECT_THROW(parallel_map(pool, -1, [](int64_t i) { return i; }), InvalidArgument);
}

// What has a state is refused by the compiler: tests/broken/sent_functions.cpp.
struct Square {
  double operator()(int64_t i, double factor) const { return factor * static_cast<double>(i * i); }
};

TEST_P(Loops, FunctionObjectsWithoutStateRun) {
  Pool pool(options(2));
  EXPECT_EQ(parallel_map(pool, 4, Square(), 2.5), (std::vector<double>{0, 2.5, 10, 22.5}));
  EXPECT_EQ(parallel_reduce_with({.chunk = 2}, pool, 5, Square(), std::plus<>(), 2.5), 75);
  EXPECT_EQ(pool.submit(Square(), 3, 2.5).get(), 22.5);
}

TEST_P(Loops, TheFirstErrorByIndexIsThrown) {
  Pool pool(options(3));
  for (int repeat = 0; repeat < 5; ++repeat) {
    try {
      parallel_for_with({.chunk = 1}, pool, 40, [](int64_t i) {
        // Later indices fail sooner.
        std::this_thread::sleep_for(std::chrono::milliseconds(i < 5 ? 20 : 0));
        if (i == 3 || i > 20) throw DataError("pass " + std::to_string(i));
      });
      FAIL() << "nothing was thrown";
    } catch (const DataError& e) {
      EXPECT_EQ(std::string(e.what()), "pass 3");
    }
  }
}

// Floating-point sums depend on the order. This one is the same for every partition.
TEST_P(Loops, ReductionsAreTheSameForEveryPartition) {
  const auto sum = [this](int workers, int64_t n, int64_t chunk) {
    Pool pool(options(workers));
    return parallel_reduce_with(
        {.chunk = chunk}, pool, n, [](int64_t i) { return 1.0f / static_cast<float>(i + 1); },
        [](float a, float b) { return a + b; });
  };
  for (const int64_t n : {1, 2, 11, 1000}) {
    const float one = sum(1, n, n);
    for (const int workers : {1, 2, 3}) {
      for (const int64_t chunk : {0, 1, 3, 64}) EXPECT_EQ(sum(workers, n, chunk), one) << n;
    }
  }
  EXPECT_THROW(sum(1, 0, 1), InvalidArgument);
}

TEST_P(Loops, RandomNumbersBelongToThePass) {
  const auto draw = [this](int workers, int64_t chunk) {
    Pool pool(options(workers));
    LoopOptions loop{.chunk = chunk};
    loop.submit.seed = 11;
    return parallel_map_with(loop, pool, 50, [](int64_t) { return task_random().uniform(); });
  };
  const auto one = draw(1, 50);
  EXPECT_EQ(draw(3, 1), one);
  EXPECT_EQ(draw(2, 7), one);
  EXPECT_NE(one[0], one[1]);
}

TEST_P(Loops, QueuesCarryValuesInOrder) {
  Pool pool(options(3));
  DataQueue<std::pair<int, int>> queue(pool, 100);
  std::vector<std::vector<int>> seen(3);
  std::atomic<int> count{0};
  const auto futures = pool.submit_on_all(
      [](const QueueSender<std::pair<int, int>>& to) {
        for (int i = 0; i < 500; ++i) to.send({task_worker(), i});
      },
      queue.sender());
  // Values that arrive after the first ones wait.
  ASSERT_TRUE(testing::await([&] { return !queue.finish(0); })) << "nothing has arrived";
  queue.after_each([&](const std::pair<int, int>& v) {
    seen[static_cast<size_t>(v.first)].push_back(v.second);
    if (++count == 3) throw DataError("dropped");
  });
  fetch_all(futures);
  EXPECT_TRUE(testing::await([&] { return count == 1500; })) << count;
  for (const auto& values : seen) {
    ASSERT_EQ(values.size(), 500u);
    for (int i = 0; i < 500; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i);
  }
}

TEST_P(Loops, AFullQueueBlocksTheSender) {
  Pool pool(options(2));
  PollableDataQueue<std::vector<double>> queue(pool, 4);
  const std::vector<double> large(20000, 1.5);  // about seven fill a ring
  const auto sender = pool.submit(
      [](const QueueSender<std::vector<double>>& to, std::vector<double> value) {
        for (int i = 0; i < 40; ++i) {
          value[0] = i;
          to.send(value);
        }
      },
      queue.sender(), large);
  ASSERT_TRUE(testing::await([&] { return queue.size() == 4; })) << queue.size();
  EXPECT_FALSE(sender.wait_for(0.3));
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_EQ(pool.submit_to(1 - std::max(sender.worker(), 0), [] { return 5; }).get(), 5)
      << "another was held back, too";
  for (int i = 0; i < 40; ++i) {
    const auto value = queue.poll(kLimit);
    ASSERT_TRUE(value);
    EXPECT_EQ((*value)[0], i);
    EXPECT_EQ(value->size(), large.size());
  }
  sender.get();
  EXPECT_FALSE(queue.poll(0.01));
  EXPECT_THROW(queue.sender().send({}), InvalidArgument);
}

TEST_P(Loops, ClientsSendToTasks) {
  Pool pool(options(2));
  WorkerQueue<std::string> queue(pool);
  const auto futures = pool.submit_on_all(
      [](const QueueReceiver<std::string>& from) {
        std::string text;
        while (const auto word = from.poll(20)) {
          if (*word == ".") break;
          text += *word;
        }
        return text;
      },
      queue.receiver());
  for (int i = 0; i < 200; ++i) {
    for (int w = 0; w < 2; ++w) ASSERT_TRUE(queue.send(w, std::to_string(w) + ","));
  }
  for (int w = 0; w < 2; ++w) ASSERT_TRUE(queue.send(w, "."));
  for (int w = 0; w < 2; ++w) {
    const std::string text = futures[static_cast<size_t>(w)].get();
    EXPECT_EQ(std::count(text.begin(), text.end(), ','), 200);
    EXPECT_EQ(text.substr(0, 2), std::to_string(w) + ",");
  }
  EXPECT_FALSE(queue.send(7, "no worker", 0.1));
  const auto waits =
      pool.submit([](const QueueReceiver<std::string>& from) { return from.poll(60).has_value(); },
                  queue.receiver());
  ASSERT_TRUE(testing::await([&] { return waits.state() == TaskState::running; }));
  EXPECT_FALSE(waits.wait_for(0.05));
  waits.cancel();
  EXPECT_TRUE(waits.wait_for(2));
}

TEST_P(Loops, QueuesWithoutCapacityAreRefused) {
  Pool pool(options(1));
  EXPECT_THROW(DataQueue<int>(pool, 0), InvalidArgument);
  EXPECT_THROW(PollableDataQueue<int>(pool, 0), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Loops, ::testing::Values(true, false), [](const auto& threads) {
  return threads.param ? std::string("Threads") : std::string("Processes");
});

// A full queue that is never read must not keep a task alive or prevent the replacement of a
// worker.
TEST(ProcessLoops, AFullQueueDoesNotPreventTheEndOfTasks) {
  Pool pool({.workers = 1, .grace = 0.1});
  PollableDataQueue<std::vector<double>> queue(pool, 2);
  const auto flood = [](const QueueSender<std::vector<double>>& to) {
    for (;;) to.send(std::vector<double>(1000, 1.5));
  };
  for (const bool killed : {false, true}) {
    const auto sender = pool.submit(flood, queue.sender());
    ASSERT_TRUE(testing::await([&] { return queue.size() >= 2; })) << "nothing was sent";
    EXPECT_FALSE(sender.wait_for(0.3));
    if (killed) {
      kill(static_cast<pid_t>(pool.workers()[0].pid), SIGKILL);
    } else {
      sender.cancel();
    }
    EXPECT_TRUE(sender.wait_for(5));
    EXPECT_EQ(pool.submit([] { return 1; }).get(), 1);
  }
  EXPECT_GE(queue.size(), 4u) << "what was accepted is there";
}

// A queue that is emptied as fast as it is filled must not block the client.
TEST(ProcessLoops, AFloodOfMessagesBlocksNoCaller) {
  Pool pool({.workers = 2, .grace = 0.2});
  DataQueue<int> queue(pool);
  std::atomic<int64_t> count{0};
  queue.after_each([&](int) { ++count; });
  const auto flood = pool.submit(
      [](const QueueSender<int>& to) {
        for (;;) to.send(1);
      },
      queue.sender());
  ASSERT_TRUE(testing::await([&] { return count >= 1000; }));
  const auto before = TimeLimit::Clock::now();
  EXPECT_EQ(pool.submit([] { return 5; }).get(), 5);
  flood.cancel();
  EXPECT_TRUE(flood.wait_for(5));
  EXPECT_LT(TimeLimit::Clock::now() - before, std::chrono::seconds(3));
}

TEST(ProcessLoops, MessagesForTasksWaitInBounds) {
  Pool pool({.workers = 1});
  WorkerQueue<std::vector<char>> queue(pool);
  const std::vector<char> large(100000, 'x');
  int sent = 0;
  ASSERT_TRUE(testing::await([&] { return pool.workers()[0].ready; }));
  while (sent < 100 && queue.send(0, large, 0.2)) ++sent;
  EXPECT_GE(sent, 1);
  EXPECT_LE(sent, 4);
  const auto sum = pool.submit(
      [](const QueueReceiver<std::vector<char>>& from, int n) {
        size_t bytes = 0;
        for (int i = 0; i < n; ++i) bytes += from.poll(20)->size();
        return bytes;
      },
      queue.receiver(), sent + 1);
  ASSERT_TRUE(queue.send(0, large));
  EXPECT_EQ(sum.get(), static_cast<size_t>(sent + 1) * large.size());
}

// Queues may outlive their pool, and no callback runs after they are destroyed.
TEST(ProcessLoops, QueuesAndPoolsMayBeDestroyedInAnyOrder) {
  std::vector<int> seen;
  {
    auto pool = std::make_unique<Pool>(PoolOptions{.workers = 1});
    DataQueue<int> late(*pool), early(*pool);
    PollableDataQueue<int> polled(*pool);
    {
      DataQueue<int> gone(*pool);
      gone.after_each([&](int v) { seen.push_back(-v); });
      pool->submit([](const QueueSender<int>& to) { to.send(7); }, gone.sender()).get();
      EXPECT_TRUE(gone.finish());
      EXPECT_EQ(seen, std::vector<int>{-7});
    }
    pool->submit(
            [](const QueueSender<int>& a, const QueueSender<int>& b) {
              for (int i = 0; i < 3; ++i) {
                a.send(i);
                b.send(i);
              }
            },
            late.sender(), polled.sender())
        .get();
    pool.reset();
    late.after_each([&](int v) { seen.push_back(v); });
    EXPECT_EQ(polled.poll(), 0);
  }
  EXPECT_EQ(seen, (std::vector<int>{-7, 0, 1, 2}));
}

// Values that send() accepted arrive, even if the sender is killed immediately after.
TEST(ProcessLoops, SentMessagesAreNotLost) {
  Pool pool({.workers = 2});
  PollableDataQueue<int> queue(pool);
  std::vector<Future<void>> futures;
  for (int k = 0; k < 20; ++k) {
    futures.push_back(pool.submit(
        [](const QueueSender<int>& to, int base) {
          for (int i = 0; i < 50; ++i) to.send(base + i);
          kill(getpid(), SIGKILL);
        },
        queue.sender(), k * 50));
  }
  for (const auto& f : futures) EXPECT_THROW(f.get(), WorkerLost);
  std::vector<bool> seen(1000, false);
  while (const auto value = queue.poll()) seen[static_cast<size_t>(*value)] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 1000);
}

}  // namespace
}  // namespace lockstep
