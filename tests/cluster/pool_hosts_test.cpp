// Pools whose workers are on several hosts.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/pool/data_queue.h"
#include "lockstep/parallel/pool/message_inbox.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/parallel/pool/task_context.h"
#include "tests/cluster/host_pools.h"
#include "tests/parallel/network.h"

namespace lockstep {
namespace {

using detail::PoolHost;
using testing_hosts::here_and_two;
using testing_hosts::host_of;
using testing_hosts::HostPool;
using testing_hosts::kLimit;
using testing_hosts::TaskPtr;
using testing_hosts::where;

// Larger than the rings. ZeroMQ is built without the thread sanitizer, whose suppressions take a
// second for each megabyte, as long as a host may be silent.
#if defined(__SANITIZE_THREAD__)
constexpr size_t kLarge = size_t{64} << 10;
#else
constexpr size_t kLarge = size_t{12} << 20;
#endif

TEST(PoolHosts, WorkersAreWhereTheyShallBe) {
  unsetenv("HOST");
  HostPool pool(here_and_two());
  std::vector<std::string> hosts;
  for (int slot = 0; slot < 4; ++slot) hosts.push_back(host_of(pool, pool.submit_to<&where>(slot)));
  EXPECT_EQ(hosts, (std::vector<std::string>{"", "one", "one", "two"}));
  ASSERT_NE(pool.core->hosts(), nullptr);
  EXPECT_EQ(pool.core->hosts()->host_of(2), 1);
  EXPECT_EQ(pool.core->hosts()->local_rank_of(2), 1);
  EXPECT_EQ(pool.core->hosts()->status(2).name, "two");
  EXPECT_EQ(pool.core->hosts()->status(2).address, "127.0.0.1");
}

std::vector<int> doubled(std::vector<int> values) {
  for (int& v : values) v *= 2;
  return values;
}

TEST(PoolHosts, ArgumentsAndResultsOfAnySize) {
  HostPool pool(here_and_two());
  for (const size_t n : {size_t{0}, size_t{1}, kLarge / sizeof(int)}) {
    std::vector<int> values(n);
    std::iota(values.begin(), values.end(), 0);
    EXPECT_EQ(pool.result<std::vector<int>>(pool.submit_to<&doubled>(3, values)), doubled(values));
  }
}

void fail_there(std::string text) { throw DataError("[task] " + text); }

TEST(PoolHosts, WhatATaskThrowsComesBack) {
  HostPool pool(here_and_two());
  const TaskPtr task = pool.submit_to<&fail_there>(1, std::string("no file"));
  pool.wait(task);
  EXPECT_EQ(task->state, TaskState::failed);
  EXPECT_EQ(task->error.kind, "DataError");
  EXPECT_EQ(task->error.message, "[task] no file");
}

void wait_to_be_cancelled() {
  while (!TaskContext::current()->cancelled()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(PoolHosts, TasksCanBeCancelled) {
  HostPool pool(here_and_two());
  const TaskPtr task = pool.submit_to<&wait_to_be_cancelled>(3);
  pool.wait_until_it_runs(task);
  pool.core->cancel(task);
  pool.wait(task);
  EXPECT_EQ(task->state, TaskState::cancelled);
  // The worker is unchanged.
  EXPECT_EQ(pool.result<std::vector<int>>(pool.submit_to<&doubled>(3, std::vector<int>{1})),
            std::vector<int>{2});
}

void write_shared(SharedRange range, uint64_t value) {
  const SharedRegion region = TaskContext::current()->memory().map(range);
  *reinterpret_cast<uint64_t*>(region.get()) = value;
}

uint64_t read_shared(SharedRange range) {
  const SharedRegion region = TaskContext::current()->memory().map(range);
  return *reinterpret_cast<uint64_t*>(region.get());
}

// A task that is cancelled before it has begun must not affect the worker.
TEST(PoolHosts, TasksCanBeCancelledOneBehindTheOther) {
  HostPool pool(here_and_two());
  const TaskPtr first = pool.submit_to<&wait_to_be_cancelled>(3);
  pool.wait_until_it_runs(first);
  std::vector<TaskPtr> others;
  for (int i = 0; i < 5; ++i) others.push_back(pool.submit_to<&wait_to_be_cancelled>(3));
  for (const TaskPtr& task : others) pool.core->cancel(task);
  pool.core->cancel(first);
  for (const TaskPtr& task : others) {
    pool.wait(task);
    EXPECT_EQ(task->state, TaskState::cancelled);
  }
  for (int i = 0; i < 50; ++i) {
    const TaskPtr task = pool.submit_to<&wait_to_be_cancelled>(3);
    pool.core->cancel(task);  // usually on its way
    pool.wait(task);
    EXPECT_EQ(task->state, TaskState::cancelled);
  }
  EXPECT_EQ(pool.result<std::vector<int>>(pool.submit_to<&doubled>(3, std::vector<int>{1})),
            std::vector<int>{2});
}

TEST(PoolHosts, MemoryIsCopiedToRequestedHosts) {
  HostPool pool(here_and_two());
  pool.result<std::vector<int>>(pool.submit_to<&doubled>(1, std::vector<int>{1}));
  SharedMemory& memory = pool.core->memory();
  const SharedRange range = memory.reserve(kLarge);
  const SharedRegion region = memory.map(range);
  auto& word = *reinterpret_cast<uint64_t*>(region.get());
  auto& last = *reinterpret_cast<uint64_t*>(region.get() + range.bytes - 8);
  word = 7;
  last = 9;
  detail::HostMemory& hosts = *pool.core->hosts();
  const uint64_t number = hosts.push(1, range);
  EXPECT_EQ(pool.result<uint64_t>(pool.submit_to<&read_shared>(1, range)), 7u);
  for (const TimeLimit limit(kLimit); !hosts.pushed(1, number) && !limit.reached();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(hosts.pushed(1, number));
  pool.wait(pool.submit_to<&write_shared>(2, range, uint64_t{8}));  // on the same host
  EXPECT_EQ(word, 7u);
  last = 0;
  const uint64_t presence = hosts.status(1).presence;
  EXPECT_FALSE(hosts.pull(1, presence + 1, range, kLimit)) << "of another process there";
  EXPECT_EQ(last, 0u);
  EXPECT_TRUE(hosts.pull(1, presence, range, kLimit));
  EXPECT_EQ(word, 8u);
  EXPECT_EQ(last, 9u);
}

TEST(PoolHosts, TheLastOutputOfAWorkerIsReported) {
  HostPool pool(here_and_two());
  pool.result<std::vector<int>>(pool.submit_to<&doubled>(3, std::vector<int>{1}));
  const SharedRange range = pool.core->memory().reserve(4096);
  const SharedRegion region = pool.core->memory().map(range);
  pool.core->hosts()->watch(2, range);
  const auto die = [](SharedRange where) {
    write_shared(where, 5);
    std::printf("last words\n");
    raise(SIGKILL);
  };
  const auto call = make_call(die, range);
  const TaskPtr task = pool.core->submit(call.function(), call.arguments(), {}, 3);
  pool.wait(task);
  EXPECT_EQ(task->state, TaskState::failed);
  EXPECT_EQ(task->lost.how, "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(task->diary, "last words\n");
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(region.get()), 5u);
  // A new worker has taken its place.
  EXPECT_EQ(pool.result<std::vector<int>>(pool.submit_to<&doubled>(3, std::vector<int>{1})),
            std::vector<int>{2});
}

void say_so_and_wait(std::string file) {
  std::ofstream(file).put('x');
  wait_to_be_cancelled();
}

// Seconds until a task on a host fails after a signal to its agent.
double seconds_to_lose(int signal, std::string& how) {
  HostPool pool(here_and_two());
  using Where = std::tuple<std::string, int64_t, int64_t>;
  const auto [host, pid, agent] = pool.result<Where>(pool.submit_to<&where>(3));
  // The task must have begun. A task on its way would begin again on another host.
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("lockstep_pool_hosts_" + std::to_string(getpid()));
  const TaskPtr task = pool.submit_to<&say_so_and_wait>(3, file.string());
  for (const TimeLimit limit(kLimit); !exists(file) && !limit.reached();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(remove(file)) << "the task does not begin";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(kill(static_cast<pid_t>(agent), signal), 0);
  pool.wait(task);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  how = task->error.message;
  // The other hosts are unchanged, and the lost host returns.
  EXPECT_EQ(host_of(pool, pool.submit_to<&where>(1)), "one");
  const auto [again, new_pid, new_agent] = pool.result<Where>(pool.submit_to<&where>(3));
  EXPECT_EQ(again, "two");
  EXPECT_NE(new_agent, agent);
  return taken.count();
}

TEST(PoolHosts, AHostWhoseAgentIsKilledIsLostAtOnce) {
  std::string how;
  EXPECT_LT(seconds_to_lose(SIGKILL, how), 0.5);
  EXPECT_NE(how.find("host two is lost"), std::string::npos) << how;
}

TEST(PoolHosts, AHostThatFallsSilentIsLostWithinTwoSeconds) {
  std::string how;
  EXPECT_LT(seconds_to_lose(SIGSTOP, how), 2.0);
  EXPECT_NE(how.find("no longer responds"), std::string::npos) << how;
}

// Sends `messages` messages. Writes the number of sent messages to a file now and then.
void pour(QueueSender<std::vector<int>> queue, int messages, std::string file) {
  std::vector<int> content(size_t{16} << 10);
  for (int i = 0; i < messages; ++i) {
    content[0] = i;
    queue.send(content);
    std::ofstream(file) << i + 1;
  }
}

int written(const std::string& file) {
  int count = 0;
  std::ifstream(file) >> count;
  return count;
}

// If the client takes nothing, messages wait with their workers and do not fill memory.
TEST(PoolHosts, AWorkerWaitsForAClientThatIsSlow) {
  constexpr int kMessages = 1000, kBytes = 64 << 10, kInbox = 4;
  const std::string file = ::testing::TempDir() + "/poured-" + std::to_string(getpid());
  std::filesystem::remove(file);
  HostPool pool({{"one", 1}});
  const auto inbox = std::make_shared<detail::MessageInbox>(pool.core, kInbox);
  const QueueSender<std::vector<int>> sender(pool.core->add_inbox(inbox));
  const TaskPtr task = pool.submit_to<&pour>(0, sender, kMessages, file);
  int before = -1, now = 0;
  for (const TimeLimit limit(kLimit); (now == 0 || now != before) && !limit.reached();) {
    before = now;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    now = written(file);
  }
  // The inbox, two rings, the messages under way, and one more message each.
  constexpr int kMost = kInbox + (2 * (1 << 20) + (4 << 20)) / kBytes + 8;
  EXPECT_GT(now, kInbox);
  EXPECT_LE(now, kMost);
  for (int i = 0; i < kMessages; ++i) {
    const auto message = inbox->poll(TimeLimit(kLimit));
    ASSERT_TRUE(message.has_value()) << i;
    const auto content = decode<std::vector<int>>(*message);
    ASSERT_EQ(content.size(), size_t{16} << 10);
    ASSERT_EQ(content[0], i);
  }
  pool.wait(task);
  EXPECT_EQ(task->state, TaskState::finished);
  EXPECT_EQ(inbox->waiting(), 0u);
  EXPECT_EQ(written(file), kMessages);
  std::filesystem::remove(file);
}

// ---- blocks ----

struct BlockPool : HostPool {
  explicit BlockPool(std::vector<PoolHost> hosts) : HostPool(std::move(hosts)) {}
  Pool pool{core};
};

TEST(PoolHosts, ABlockWorksOverHostsAsOnOne) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const auto work = [](Spmd& block, int64_t n) {
    std::vector<double> all;
    std::vector<double> mine(static_cast<size_t>(n));
    for (size_t i = 0; i < mine.size(); ++i) {
      mine[i] = 1.0 / (1 + static_cast<double>(i)) + 0.1 * block.index();
    }
    for (const double sum : block.plus(mine)) all.push_back(sum);
    for (const int index : block.gather(block.index())) all.push_back(index);
    all.push_back(block.broadcast(block.index() + 7.0, 2));
    const int next = (block.index() + 1) % block.size();
    const int before = (block.index() + block.size() - 1) % block.size();
    // Larger than what waits at a worker.
    std::vector<int> parcel(size_t{100'000}, block.index());
    for (int round = 0; round < 3; ++round) {
      parcel = block.send_receive(next, parcel, before, round);
    }
    all.push_back(parcel.front());
    block.barrier();
    return all;
  };
  BlockPool over_hosts(here_and_two());
  Pool here({.workers = 4});
  const auto expected = spmd(here, work, int64_t{3000});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(spmd(over_hosts.pool, work, int64_t{3000}), expected);
  }
  BlockPool one_host({{"one", 4}});
  EXPECT_EQ(spmd(one_host.pool, work, int64_t{3000}), expected);
}

TEST(PoolHosts, ABlockEndsForAllIfAWorkerThrowsOrIsLost) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  BlockPool pool(here_and_two());
  for (const int faulty : {1, 2}) {  // the first one on its host, and another one
    for (int way = 0; way < 3; ++way) {
      const auto begin = std::chrono::steady_clock::now();
      try {
        spmd(
            pool.pool,
            [](Spmd& block, int who, int how) {
              block.barrier();
              if (block.index() == who && how == 2) raise(SIGKILL);
              if (block.index() == who) throw DataError("[task] it is enough");
              how == 0 ? block.barrier() : void(block.receive<int>(who));
            },
            faulty, way);
        FAIL() << "the block did not fail";
      } catch (const Error& e) {
        const std::string text = e.what();
        // On a machine that is too busy, a host may fall silent.
        const bool silent = text.find("no longer responds") != std::string::npos;
        const char* const expected = way == 2 ? "SIGKILL" : "it is enough";
        EXPECT_TRUE(silent || text.find(expected) != std::string::npos) << text;
      }
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(taken.count(), 10) << faulty << " " << way;
    }
  }
  // The pool still works.
  EXPECT_EQ(spmd(pool.pool, [](Spmd& block) { return block.plus(1); }), std::vector<int>(4, 4));
}

TEST(PoolHosts, AHostThatCannotBeReachedIsReported) {
  const HostPool pool({{"nowhere", 1}}, "sh -c exit\\ 7");
  const auto call = make_call<&where>();
  const TaskPtr task = pool.core->submit(call.function(), call.arguments(), {}, 0);
  pool.wait(task);
  EXPECT_EQ(task->state, TaskState::failed);
  EXPECT_NE(task->error.message.find("nowhere"), std::string::npos) << task->error.message;
}

}  // namespace
}  // namespace lockstep
