// Pools of threads and of processes: tasks do not affect each other.
#include "lockstep/parallel/pool/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/parallel/pool/worker_value.h"
#include "tests/data/support.h"
#include "tests/parallel/pools.h"

namespace lockstep {
namespace {

using namespace testing_pools;

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

// The compiler decides whether a function can be sent.
constexpr auto plain = [](int a) { return a; };
static_assert(can_be_submitted<decltype(plain), int>);
static_assert(!can_be_submitted<decltype([](Secret) {}), Secret>);
static_assert(!can_be_submitted<decltype([] { return Secret(1); })>);
inline constexpr auto capturing = [](int outer) { return [outer] { return outer; }; };
static_assert(!can_be_submitted<decltype(capturing(1))>);
static_assert(!can_be_submitted<int (*)(int), int>);

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
  EXPECT_EQ(failure_of<DataError>(pool.submit([] { throw DataError("bad image", "look at it"); })),
            "bad image");
  EXPECT_EQ(failure_of<Timeout>(pool.submit([]() -> int { throw Timeout("too late"); })),
            "too late");
  EXPECT_EQ(failure_of<Error>(pool.submit([] { throw std::runtime_error("standard"); })),
            "standard");
  EXPECT_EQ(failure_of<Error>(pool.submit([] { throw 7; })),
            "an object was thrown that is not a std::exception");
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

TEST_P(Pools, QueuedTasksAreCancelledAtOnceAndRunningOnesAreNotified) {
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
  EXPECT_EQ(failure_of<Cancelled>(running), "[pool] task 1 was cancelled");
  EXPECT_EQ(after.get(), 7);
  after.cancel();
  EXPECT_EQ(after.state(), TaskState::finished) << "what has ended stays";
}

TEST_P(Pools, TasksWithALimitAreStopped) {
  Pool pool(options(1));
  const auto late = pool.submit_with({.limit = 0.1}, doze, 60.0);
  EXPECT_NE(failure_of<Timeout>(late).find("exceeded its limit"), std::string::npos);
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

// Tasks for a worker index run before that worker is removed.
TEST_P(Pools, TasksOfARemovedWorkerAreDone) {
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

// Values that are expensive to send stay on workers.
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
    EXPECT_EQ(failure_of<InvalidArgument>(pool.submit_to(
                  0, [](const WorkerValue<std::string>& v) { return v.fetch(1); }, other)),
              "[pool] only the client fetches values of workers");
    pool.resize(4);
    EXPECT_EQ(failure_of<InvalidArgument>(pool.submit_to(
                  3, [](const WorkerValue<std::string>& v) { return v.local(); }, other)),
              "[pool] worker 3 does not have the value");
    try {
      make_on_workers(pool, []() -> int { throw DataError("cannot be made"); });
      FAIL() << "nothing was thrown";
    } catch (const DataError& e) {
      EXPECT_EQ(std::string(e.what()), "cannot be made");
    }
  }
  // Values are freed with their handles.
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

TEST_P(Pools, ADeviceStaysChosenOnItsWorker) {
  const auto chosen = [] {
    const auto device = kernels::chosen_device();
    return device ? to_string(*device) : "";
  };
  Pool pool(options(2));
  pool.submit_to(1, [] { kernels::choose_device(Device{}); }).get();
  EXPECT_EQ(pool.submit_to(1, chosen).get(), "cpu");
  EXPECT_EQ(pool.submit_to(0, chosen).get(), "");
  EXPECT_EQ(kernels::chosen_device(), std::nullopt);
}

TEST_P(Pools, AttachedFilesAreKnownToAllWorkers) {
  const testing::TemporaryFolder folder, other;
  folder.write("words.txt", Bytes(3, std::byte{'a'}));
  other.write("words.txt", Bytes(1));
  Pool pool(options(2));
  const auto size_of = [](const std::string& name) {
    return static_cast<int64_t>(std::filesystem::file_size(attached_file(name)));
  };
  EXPECT_EQ(failure_of<InvalidArgument>(pool.submit(size_of, "words.txt")),
            "[pool] no file `words.txt` is attached to the pool");
  pool.attach_file(folder.path + "/words.txt");
  pool.attach_file(folder.path + "/./words.txt");  // the same file
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
        TaskRandom saved = random;  // continues from here
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
  Pool pool(options(1));
  EXPECT_THROW(pool.submit_with({.retries = -1}, plain, 1), InvalidArgument);
  EXPECT_THROW(pool.submit_with({.limit = -0.5}, plain, 1), InvalidArgument);
}

TEST_P(Pools, InvalidFuturesAreRefused) {
  const Future<int> none;
  EXPECT_FALSE(none.valid());
  EXPECT_THROW(none.state(), InvalidArgument);
  EXPECT_THROW(none.get(), InvalidArgument);
  EXPECT_THROW(none.cancel(), InvalidArgument);
  EXPECT_THROW(none.number(), InvalidArgument);
  Pool a(options(1)), b(options(1));
  const std::vector<Future<int>> both{a.submit(plain, 1), b.submit(plain, 2)};
  EXPECT_THROW(fetch_all(both), InvalidArgument);
  EXPECT_THROW(FetchNext<int>{both}, InvalidArgument);
  EXPECT_THROW(after_all(both, [](const std::vector<Future<int>>&) {}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Pools, ::testing::Values(true, false), [](const auto& threads) {
  return threads.param ? std::string("Threads") : std::string("Processes");
});

}  // namespace
}  // namespace lockstep
