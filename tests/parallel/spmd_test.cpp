// Blocks that all workers run at once.
#include "lockstep/parallel/pool/spmd.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {
namespace {

class Blocks : public ::testing::TestWithParam<bool> {
 protected:
  PoolOptions options(int workers) const {
    return {.workers = workers, .threads = GetParam(), .grace = 0.2};
  }
};

TEST_P(Blocks, KnowTheirIndexAndTalk) {
  for (const int workers : {1, 2, 3, 5}) {
    Pool pool(options(workers));
    const auto results = spmd(
        pool,
        [](Spmd& block, int base) {
          const int n = block.size(), me = block.index();
          block.barrier();
          if (block.plus(me + base) != n * base + n * (n - 1) / 2) throw DataError("plus");
          const auto vectors = block.plus(std::vector<double>{1.0, static_cast<double>(me)});
          if (vectors[0] != n || vectors[1] != n * (n - 1) / 2) throw DataError("plus of vectors");
          const auto parts =
              block.cat(std::vector<std::string>(static_cast<size_t>(me), std::to_string(me)));
          if (static_cast<int>(parts.size()) != n * (n - 1) / 2) throw DataError("cat");
          if (block.broadcast(me, n - 1) != n - 1) throw DataError("broadcast");
          const auto order = block.reduce(
              std::to_string(me),
              [](const std::string& a, const std::string& b) { return "(" + a + b + ")"; });
          // Around the ring of members, larger than a byte ring.
          const std::vector<int> large(200000, me);
          const auto from_left = block.send_receive((me + 1) % n, large, (me + n - 1) % n);
          if (from_left != std::vector<int>(200000, (me + n - 1) % n)) throw DataError("ring");
          // Tags separate the messages of one sender.
          for (int to = 0; to < n; ++to) {
            block.send(to, std::string("second"), 2);
            block.send(to, std::string("first"), 1);
          }
          for (int from = 0; from < n; ++from) {
            if (block.receive<std::string>(from, 1) != "first") throw DataError("tag");
            if (block.receive<std::string>(from, 2) != "second") throw DataError("tag");
            if (block.probe(from, 1)) throw DataError("probe");
          }
          block.send(me, 5);
          if (!block.probe(me)) throw DataError("the worker's message to itself is missing");
          block.barrier();
          return order + std::to_string(me);
        },
        10);
    const std::string tree = workers == 1   ? "0"
                             : workers == 2 ? "(01)"
                             : workers == 3 ? "((01)2)"
                                            : "(((01)(23))4)";
    ASSERT_EQ(results.size(), static_cast<size_t>(workers));
    for (int i = 0; i < workers; ++i) {
      EXPECT_EQ(results[static_cast<size_t>(i)], tree + std::to_string(i));
    }
  }
}

// All members get the error of the failed member immediately, and the pool is complete afterwards.
TEST_P(Blocks, OneErrorEndsThemAll) {
  Pool pool(options(3));
  const auto before = TimeLimit::Clock::now();
  for (int kind = 0; kind < 3; ++kind) {
    try {
      spmd(
          pool,
          [](Spmd& block, int how) {
            if (block.index() == 1) {
              std::this_thread::sleep_for(std::chrono::milliseconds(30));
              throw DataError("worker 1 has no data");
            }
            if (how == 0) block.barrier();
            if (how == 1) block.receive<int>(1);
            while (how == 2) check_cancelled();
          },
          kind);
      FAIL() << "nothing was thrown";
    } catch (const DataError& e) {
      EXPECT_EQ(std::string(e.what()), "worker 1 has no data");
    }
    const auto again = spmd(pool, [](Spmd& block) { return block.plus(1); });
    EXPECT_EQ(again, std::vector<int>(3, 3));
  }
  EXPECT_LT(TimeLimit::Clock::now() - before, std::chrono::seconds(5));
}

TEST_P(Blocks, MissingMembersAreNamed) {
  Pool pool(options(3));
  for (int kind = 0; kind < 2; ++kind) {
    try {
      spmd_with(
          {.limit = 0.2}, pool,
          [](Spmd& block, int how) {
            if (block.index() == 2) {
              while (!task_cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
              return;
            }
            if (how == 0) {
              block.barrier();
            } else {
              block.receive<int>(2);
            }
          },
          kind);
      FAIL() << "nothing was thrown";
    } catch (const Timeout& e) {
      const char* const named =
          kind == 0 ? "worker 2 did not arrive" : "worker 2 did not respond in time";
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(spmd(pool, [](Spmd& block) { block.send(3, 1); }), InvalidArgument);
  EXPECT_THROW(
      spmd(pool,
           [](Spmd& block) { block.plus(std::vector<int>(static_cast<size_t>(block.index()))); }),
      InvalidArgument);
}

// A block begins when all workers are free. Its limits count from then on.
TEST_P(Blocks, BeginTogether) {
  Pool pool(options(2));
  const auto busy =
      pool.submit_to(0, [] { std::this_thread::sleep_for(std::chrono::milliseconds(700)); });
  const auto sums = spmd_with({.limit = 0.2}, pool, [](Spmd& block) { return block.plus(1); });
  EXPECT_EQ(sums, std::vector<int>(2, 2));
  EXPECT_TRUE(busy.done());
}

// Two simultaneous blocks reach all workers in the same order.
TEST_P(Blocks, TwoFromTwoThreads) {
  Pool pool(options(3));
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int c = 0; c < 2; ++c) {
    clients.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        const auto sums = spmd(
            pool, [](Spmd& block, int x) { return block.plus(x); }, k);
        if (sums == std::vector<int>(3, 3 * k)) ++right;
      }
    });
  }
  for (auto& c : clients) c.join();
  EXPECT_EQ(right, 40);
}

TEST_P(Blocks, LimitsThatCannotBeAreRefused) {
  Pool pool(options(1));
  EXPECT_THROW(spmd_with({.limit = 0}, pool, [](Spmd&) {}), InvalidArgument);
  EXPECT_EQ(spmd(pool, [](Spmd& block) { return block.index(); }), std::vector<int>{0});
}

INSTANTIATE_TEST_SUITE_P(Kinds, Blocks, ::testing::Values(true, false), [](const auto& threads) {
  return threads.param ? std::string("Threads") : std::string("Processes");
});

TEST(ProcessBlocks, AKilledWorkerEndsTheBlock) {
  Pool pool({.workers = 3});
  try {
    spmd(pool, [](Spmd& block) {
      block.barrier();
      if (block.index() == 2) kill(getpid(), SIGKILL);
      block.barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const WorkerLost& e) {
    EXPECT_NE(std::string(e.what()).find("was killed by signal 9 (SIGKILL)"), std::string::npos)
        << e.what();
  }
  EXPECT_EQ(spmd(pool, [](Spmd& block) { return block.plus(1); }), std::vector<int>(3, 3));
}

}  // namespace
}  // namespace lockstep
