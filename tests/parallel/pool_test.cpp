// Pools of threads and of processes: what tasks do to each other, which is nothing.
#include "lockstep/parallel/pool/pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/worker_value.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

constexpr double kLimit = 30;

int64_t add(int64_t a, int64_t b) { return a + b; }

struct Person {
  std::string name;
  std::vector<double> values;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, values);
  }
};

struct Secret {
  explicit Secret(int) {}
};

// What can be sent is known when a program is compiled.
constexpr auto plain = [](int a) { return a; };
static_assert(can_be_submitted<decltype(plain), int>);
static_assert(!can_be_submitted<decltype([](Secret) {}), Secret>);
static_assert(!can_be_submitted<decltype([] { return Secret(1); })>);
inline constexpr auto capturing = [](int outer) { return [outer] { return outer; }; };
static_assert(!can_be_submitted<decltype(capturing(1))>);
static_assert(!can_be_submitted<int (*)(int), int>);

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Sleeps, but wakes when it is cancelled.
constexpr auto doze = [](double seconds) {
  for (const TimeLimit limit(seconds); !limit.reached();) {
    check_cancelled();
    sleep_seconds(0.002);
  }
};

bool await(const std::function<bool()>& holds, double seconds = kLimit) {
  for (const TimeLimit limit(seconds); !limit.reached(); sleep_seconds(0.001)) {
    if (holds()) return true;
  }
  return false;
}

bool whole(const Pool& pool) {
  const auto workers = pool.workers();
  return std::all_of(workers.begin(), workers.end(), [](const auto& w) { return w.ready; });
}

template <class E, class R>
std::string message_of(const Future<R>& future) {
  try {
    future.get();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("something else: ") + e.what();
  }
  return "(nothing was thrown)";
}

class Pools : public ::testing::TestWithParam<bool> {
 protected:
  PoolOptions options(int workers) const { return {.workers = workers, .threads = GetParam()}; }
};

TEST_P(Pools, RunFunctions) {
  Pool pool(options(2));
  EXPECT_EQ(pool.size(), 2);
  const auto sum = pool.submit<&add>(2, 3);
  const auto lambda = pool.submit(
      [](int64_t a, const std::string& b) { return b + std::to_string(a); }, 7, "number ");
  const auto person = pool.submit(
      [](Person p) {
        p.values.push_back(1.5);
        return p;
      },
      Person{"Ada", {0.25}});
  const auto nothing = pool.submit([] {});
  EXPECT_EQ(sum.get(), 5);
  EXPECT_EQ(sum.get(), 5) << "asked again";
  EXPECT_EQ(lambda.get(), "number 7");
  EXPECT_EQ(person.get().values, (std::vector<double>{0.25, 1.5}));
  nothing.get();
  EXPECT_EQ(nothing.state(), TaskState::finished);
  EXPECT_TRUE(sum.worker() == 0 || sum.worker() == 1);
}

TEST_P(Pools, LargeArgumentsAndResults) {
  Pool pool(options(2));
  std::vector<double> large(1500001);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<double>(i) * 0.5;
  std::vector<Future<std::vector<double>>> futures;
  for (int i = 0; i < 4; ++i) {
    futures.push_back(pool.submit(
        [](std::vector<double> v) {
          std::reverse(v.begin(), v.end());
          return v;
        },
        large));
  }
  std::vector<double> expected = large;
  std::reverse(expected.begin(), expected.end());
  for (const auto& all : fetch_all(futures)) EXPECT_EQ(all, expected);
}

TEST_P(Pools, ErrorsAreRethrownAsWhatTheyWere) {
  Pool pool(options(1));
  EXPECT_EQ(message_of<DataError>(pool.submit([] { throw DataError("bad image", "look at it"); })),
            "bad image");
  EXPECT_EQ(message_of<Timeout>(pool.submit([]() -> int { throw Timeout("too late"); })),
            "too late");
  EXPECT_EQ(message_of<Error>(pool.submit([] { throw std::runtime_error("standard"); })),
            "standard");
  EXPECT_EQ(message_of<Error>(pool.submit([] { throw 7; })),
            "something was thrown that is no exception");
  const auto failed = pool.submit([] { throw DataError("x"); });
  failed.wait();
  EXPECT_EQ(failed.state(), TaskState::failed);
  EXPECT_EQ(failed.error(), "x");
}

TEST_P(Pools, AThousandFutures) {
  Pool pool(options(3));
  std::vector<Future<int64_t>> futures;
  for (int64_t i = 0; i < 1000; ++i) futures.push_back(pool.submit<&add>(i, i));
  const auto results = fetch_all(futures);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(results[static_cast<size_t>(i)], 2 * i);
}

TEST_P(Pools, AreFetchedAsTheyFinish) {
  Pool pool(options(3));
  std::vector<Future<int>> futures;
  for (const int ms : {150, 1, 60}) {
    futures.push_back(pool.submit(
        [](int m) {
          sleep_seconds(m / 1000.0);
          return m;
        },
        ms));
  }
  ASSERT_TRUE(await([&] { return whole(pool); }));
  FetchNext<int> next(futures);
  std::vector<int> order;
  while (const auto i = next.next(kLimit)) order.push_back(next[*i].get());
  EXPECT_EQ(order, (std::vector<int>{1, 60, 150}));
  EXPECT_EQ(next.left(), 0u);
  const auto slow = pool.submit(doze, 60.0);
  EXPECT_FALSE(slow.wait_for(0.05));
  FetchNext<void> none({slow});
  EXPECT_FALSE(none.next(0.05));
  slow.cancel();
}

TEST_P(Pools, CallbacksComeOneAfterTheOther) {
  Pool pool(options(3));
  std::vector<Future<int64_t>> futures;
  for (int64_t i = 0; i < 50; ++i) futures.push_back(pool.submit<&add>(i, 0));
  std::atomic<int> inside{0}, count{0}, together{0};
  for (const auto& f : futures) {
    f.then([&](const Future<int64_t>& done) {
      if (++inside > 1) ++together;
      if (done.get() >= 0) ++count;
      --inside;
      throw DataError("dropped");
    });
  }
  std::atomic<bool> all{false};
  after_all(futures, [&](const std::vector<Future<int64_t>>& done) { all = done.size() == 50; });
  EXPECT_TRUE(await([&] { return count == 50 && all; }));
  EXPECT_EQ(together, 0);
}

TEST_P(Pools, HigherPrioritiesBeginFirst) {
  Pool pool(options(1));
  const auto block = pool.submit(doze, 0.3);
  std::vector<Future<double>> futures;
  for (const int priority : {0, 5, -1, 5}) {
    futures.push_back(pool.submit_with({.priority = priority}, [] {
      sleep_seconds(0.005);
      return std::chrono::duration<double>(TimeLimit::Clock::now().time_since_epoch()).count();
    }));
  }
  block.wait();
  const auto at = fetch_all(futures);
  EXPECT_LT(at[1], at[3]);
  EXPECT_LT(at[3], at[0]);
  EXPECT_LT(at[0], at[2]);
}

TEST_P(Pools, QueuedTasksAreCancelledAtOnceAndRunningOnesAreAsked) {
  Pool pool(options(1));
  const auto running = pool.submit(doze, 60.0);
  const auto queued = pool.submit<&add>(1, 2);
  const auto after = pool.submit<&add>(3, 4);
  ASSERT_TRUE(await([&] { return whole(pool) && running.state() == TaskState::running; }));
  sleep_seconds(0.05);
  EXPECT_EQ(queued.state(), TaskState::queued);
  queued.cancel();
  EXPECT_EQ(queued.state(), TaskState::cancelled);
  running.cancel();
  EXPECT_TRUE(running.wait_for(2));
  EXPECT_EQ(running.state(), TaskState::cancelled);
  EXPECT_EQ(message_of<Cancelled>(running), "[pool] task 1 was cancelled");
  EXPECT_EQ(after.get(), 7);
  after.cancel();
  EXPECT_EQ(after.state(), TaskState::finished) << "what has ended stays";
}

TEST_P(Pools, TasksWithALimitAreStopped) {
  Pool pool(options(1));
  const auto late = pool.submit_with({.limit = 0.1}, doze, 60.0);
  EXPECT_NE(message_of<Timeout>(late).find("ran for longer than its limit"), std::string::npos);
  EXPECT_EQ(late.state(), TaskState::cancelled);
  pool.submit_with({.limit = 30}, doze, 0.01).get();
}

TEST_P(Pools, GrowAndShrink) {
  Pool pool(options(1));
  pool.resize(3);
  EXPECT_EQ(pool.size(), 3);
  const auto all = pool.submit_on_all([] { return std::pair(task_worker(), pool_workers()); });
  ASSERT_EQ(all.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].get(), std::pair(i, 3));
  const auto last = pool.submit_to(2, doze, 0.3);
  ASSERT_TRUE(await([&] { return last.state() == TaskState::running; }));
  pool.resize(1);
  EXPECT_EQ(pool.size(), 1);
  last.get();
  EXPECT_EQ(pool.submit<&add>(1, 1).get(), 2);
  EXPECT_THROW(pool.submit_to(1, plain, 1), InvalidArgument);
  EXPECT_THROW(pool.resize(-1), InvalidArgument);
}

// What was submitted to a worker by its index is done before it goes.
TEST_P(Pools, WhatWasForAWorkerThatGoesIsDone) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    Pool pool(options(4));
    const auto busy = pool.submit_to(3, doze, 0.02);
    const auto pinned = pool.submit_to(3, plain, 5);
    const auto other = pool.submit_to(2, plain, 6);
    pool.resize(1);
    EXPECT_EQ(pinned.get(), 5);
    EXPECT_EQ(other.get(), 6);
    busy.get();
    EXPECT_THROW(pool.submit_to(3, plain, 1), InvalidArgument);
    pool.resize(3);
    EXPECT_EQ(pool.submit_to(2, plain, 7).get(), 7);
  }
}

// What is costly to bring to workers stays there.
TEST_P(Pools, ValuesStayOnWorkers) {
  Pool pool(options(3));
  {
    const auto counts = make_on_workers(
        pool, [](int base) { return std::vector<int>{base + task_worker()}; }, 10);
    const auto other = make_on_workers(pool, [] { return std::string("other"); });
    for (int round = 1; round <= 3; ++round) {
      fetch_all(pool.submit_on_all(
          [](const WorkerValue<std::vector<int>>& v, int n) { v.local().push_back(n); }, counts,
          round));
    }
    for (int w = 0; w < 3; ++w) {
      EXPECT_EQ(counts.fetch(w), (std::vector<int>{10 + w, 1, 2, 3}));
      EXPECT_EQ(other.fetch(w), "other");
    }
    EXPECT_THROW(counts.local(), InvalidArgument);
    pool.resize(4);
    EXPECT_EQ(message_of<InvalidArgument>(pool.submit_to(
                  3, [](const WorkerValue<std::string>& v) { return v.local(); }, other)),
              "[pool] worker 3 does not have the value");
    try {
      make_on_workers(pool, []() -> int { throw DataError("cannot be made"); });
      FAIL() << "nothing was thrown";
    } catch (const DataError& e) {
      EXPECT_EQ(std::string(e.what()), "cannot be made");
    }
  }
  // They went with their handles.
  EXPECT_EQ(pool.submit_to(0,
                           [] {
                             int left = 0;
                             for (uint64_t n = 1; n < 100; ++n)
                               left += detail::kept_value(n, 0) != nullptr;
                             return left;
                           })
                .get(),
            0);
}

TEST_P(Pools, AttachedFilesAreKnownToAllWorkers) {
  const testing::TemporaryFolder folder, other;
  folder.write("words.txt", Bytes(3, std::byte{'a'}));
  other.write("words.txt", Bytes(1));
  Pool pool(options(2));
  const auto size_of = [](const std::string& name) {
    return static_cast<int64_t>(std::filesystem::file_size(attached_file(name)));
  };
  EXPECT_EQ(message_of<InvalidArgument>(pool.submit(size_of, "words.txt")),
            "[pool] no file `words.txt` is attached to the pool");
  pool.attach_file(folder.path + "/words.txt");
  pool.attach_file(folder.path + "/./words.txt");  // the same
  for (const auto& f : pool.submit_on_all(size_of, "words.txt")) EXPECT_EQ(f.get(), 3);
  pool.resize(3);
  EXPECT_EQ(pool.submit_to(2, size_of, "words.txt").get(), 3);
  EXPECT_THROW(pool.attach_file(other.path + "/words.txt"), InvalidArgument);
  EXPECT_THROW(pool.attach_file(folder.path + "/none"), InvalidArgument);
  EXPECT_THROW(attached_file("words.txt"), InvalidArgument);
}

TEST_P(Pools, EndWithWorkersThatAreGoing) {
  const auto before = TimeLimit::Clock::now();
  {
    Pool pool(options(2));
    const auto running = pool.submit_to(1, doze, 60.0);
    ASSERT_TRUE(await([&] { return running.state() == TaskState::running; }));
    pool.resize(1);
  }
  EXPECT_LT(TimeLimit::Clock::now() - before, std::chrono::seconds(10));
}

TEST_P(Pools, RandomNumbersBelongToTheTask) {
  const auto draw = [this](int workers, uint64_t seed) {
    PoolOptions o = options(workers);
    o.seed = seed;
    Pool pool(o);
    std::vector<Future<double>> futures;
    for (int i = 0; i < 20; ++i) {
      futures.push_back(pool.submit([] {
        TaskRandom random = task_random();
        random.uniform();
        TaskRandom saved = random;  // goes on from here
        const double a = random.normal();
        return saved.normal() == a ? a : -1e9;
      }));
    }
    return fetch_all(futures);
  };
  const auto one = draw(1, 5);
  EXPECT_EQ(one, draw(3, 5));
  EXPECT_NE(one, draw(3, 6));
  EXPECT_NE(one[0], one[1]);
}

TEST_P(Pools, FuturesOutliveTheirPool) {
  Future<int64_t> done;
  Future<void> open, queued;
  bool told = false;
  {
    Pool pool(options(1));
    done = pool.submit<&add>(1, 2);
    done.wait();
    open = pool.submit(doze, 60.0);
    queued = pool.submit(doze, 60.0);
    queued.then([&](const Future<void>&) { told = true; });
  }
  EXPECT_EQ(done.get(), 3);
  EXPECT_EQ(open.state(), TaskState::cancelled);
  EXPECT_EQ(queued.state(), TaskState::cancelled);
  EXPECT_TRUE(told);
  bool late = false;
  done.then([&](const Future<int64_t>& f) { late = f.get() == 3; });
  EXPECT_TRUE(late);
}

TEST_P(Pools, CountsThatCannotBeAreRefused) {
  PoolOptions o = options(-1);
  EXPECT_THROW(Pool{o}, InvalidArgument);
  o.workers = 100000;
  EXPECT_THROW(Pool{o}, InvalidArgument);
  o = options(1);
  o.grace = -1;
  EXPECT_THROW(Pool{o}, InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Pools, ::testing::Values(true, false), [](const auto& threads) {
  return threads.param ? std::string("Threads") : std::string("Processes");
});

// ---- processes ----

// Workers that cannot start are not started again and again at once, and who waits hears of it.
TEST(ProcessPool, WorkersThatNeverGetReadyAreToldOf) {
  Pool pool({.workers = 1, .memory_bytes = 1 << 20});
  const auto before = TimeLimit::Clock::now();
  const auto task = pool.submit<&add>(1, 2);
  ASSERT_TRUE(task.wait_for(60));
  EXPECT_NE(message_of<WorkerLost>(task).find("[pool] workers end before they are ready: "),
            std::string::npos)
      << task.error();
  EXPECT_GT(TimeLimit::Clock::now() - before, std::chrono::seconds(2));
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kMemory = 0;  // sanitizers take memory of their own
#else
constexpr uint64_t kMemory = uint64_t{1} << 30;
#endif

int depth(int n) { return n == 0 ? 0 : 1 + depth(n - 1) % 1000003; }

// Whatever a task does: its future says it, the others are untouched, the pool is whole again.
TEST(ProcessPool, NothingThatATaskDoesHarmsOthers) {
  Pool pool({.workers = 3, .grace = 0.2, .memory_bytes = kMemory});
  ASSERT_TRUE(await([&] { return whole(pool); }));
  const auto before = pool.workers();
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
    const std::string text = message_of<WorkerLost>(future);
    // Sanitizers end a process that overflows its stack in their own way.
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
    EXPECT_EQ(message_of<Error>(greedy), "there is not enough memory");
  }
  // Who does not stop is ended.
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
  EXPECT_EQ(message_of<DataError>(pool.submit_with({.retries = 5}, attempt, file, false)),
            "attempt 1");
  std::remove(file.c_str());
  EXPECT_NE(
      message_of<WorkerLost>(pool.submit_with({.retries = 1}, attempt, file, true)).find("SIGKILL"),
      std::string::npos);
  std::remove(file.c_str());
}

TEST(ProcessPool, DiariesSayWhatTasksPrinted) {
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

// Who prints without end fills no memory.
TEST(ProcessPool, DiariesKeepTheirEnds) {
  Pool pool({.workers = 1, .grace = 0.1});
  const auto chatty = pool.submit([] {
    for (int line = 0; !task_cancelled(); ++line) std::printf("line %d\n", line);
  });
  // What was printed, and what of it takes memory.
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

// A task that no worker can even receive ends nobody else's.
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

// Tasks that were handed out ahead of time are nobody's own.
TEST(ProcessPool, WhoeverIsFreeTakesWhatOthersWereGiven) {
  Pool pool({.workers = 2});
  ASSERT_TRUE(await([&] { return whole(pool); }));
  // Short ones first, so that workers are given several at a time.
  std::vector<Future<int64_t>> short_ones;
  for (int64_t i = 0; i < 500; ++i) short_ones.push_back(pool.submit<&add>(i, i));
  fetch_all(short_ones);
  std::vector<Future<void>> mixed;
  const auto before = TimeLimit::Clock::now();
  mixed.push_back(pool.submit_to(0, doze, 0.8));
  mixed.push_back(pool.submit_to(0, doze, 0.001));  // waits for it, and hinders nobody
  for (int i = 0; i < 40; ++i) mixed.push_back(pool.submit(doze, 0.001));
  for (size_t i = 2; i < mixed.size(); ++i) mixed[i].wait();
  EXPECT_LT(std::chrono::duration<double>(TimeLimit::Clock::now() - before).count(), 0.7)
      << "some waited behind the long one";
  mixed[0].wait();
}

// Each ends in exactly one state, whatever happens meanwhile.
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
