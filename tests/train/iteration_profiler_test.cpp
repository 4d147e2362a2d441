#include "lockstep/train/profile/iteration_profiler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using namespace testing;
using Clock = std::chrono::steady_clock;
using Phase = ProfileAccount::Phase;

// Computes for some time, so that the time is spent independently of other load.
void spend(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
  }
}

const ProfileAccount& account(const Profile& profile, const std::string& name) {
  for (const ProfileAccount& a : profile.accounts) {
    if (a.name == name) return a;
  }
  throw InvalidArgument("no account " + name);
}

TEST(IterationProfiler, ChargesAllTimeOfAllThreadsOnce) {
  constexpr int kThreads = 3, kIterations = 4;
  ThreadPool pool(kThreads);
  IterationProfiler profiler(kThreads);
  const int work = profiler.account(Phase::forward, "work"),
            rest = profiler.account(Phase::iteration, "rest");
  EXPECT_EQ(profiler.account(Phase::forward, "work"), work);
  EXPECT_NE(profiler.account(Phase::backward, "work"), work);
  double wall = 0;
  for (int i = 0; i < kIterations; ++i) {
    spend(0.003);  // between iterations: charged to no account
    profiler.begin_iteration();
    pool.run([&](int thread) {
      profiler.charge(thread, profiler.waiting());
      spend(0.002 * (1 + thread));
      profiler.charge(thread, work);
    });
    profiler.charge(0, profiler.waiting());
    spend(0.001);
    profiler.charge(0, rest);
    wall += profiler.end_iteration();
  }
  const Profile p = profiler.finish(0.5);
  EXPECT_EQ(p.threads, kThreads);
  EXPECT_EQ(p.iterations, kIterations);
  EXPECT_DOUBLE_EQ(p.wall, wall);
  EXPECT_DOUBLE_EQ(p.preparation, 0.5 * kIterations);
  EXPECT_NEAR(p.charged(), kThreads * wall, 1e-7);
  EXPECT_EQ(account(p, "work").calls, kThreads * kIterations);
  EXPECT_GE(account(p, "work").seconds, 0.012 * kIterations);
  EXPECT_GE(account(p, "rest").seconds, 0.001 * kIterations);
  // The first two threads wait for the third, and all others while the first one runs alone.
  EXPECT_GE(account(p, "waiting for other threads").seconds, (0.004 + 0.002) * kIterations);
  EXPECT_EQ(p.accounts.back().name, "waiting for other threads");
  EXPECT_EQ(p.accounts.front().phase, Phase::forward);
  // Spans cover the same time, and those of a thread do not overlap.
  double spans = 0;
  std::map<int, double> ends;
  for (const ProfileSpan& s : p.spans) {
    EXPECT_GE(s.begin, ends[s.thread] - 1e-9);
    ends[s.thread] = s.begin + s.seconds;
    spans += s.seconds;
  }
  EXPECT_NEAR(spans, p.charged(), 1e-6);
}

TEST(IterationProfiler, FloorsAreOfAllCalls) {
  IterationProfiler profiler(1);
  const int work = profiler.account(Phase::forward, "work");
  profiler.begin_iteration();
  for (int i = 0; i < 3; ++i) profiler.charge(0, work);
  spend(0.001);
  const double wall = profiler.end_iteration();
  EXPECT_GE(wall, 0.001);
  profiler.set_floor(work, 0.5);
  const Profile p = profiler.finish(0);
  EXPECT_DOUBLE_EQ(account(p, "work").floor, 1.5);
  EXPECT_TRUE(std::isnan(account(p, "waiting for other threads").floor));
  EXPECT_DOUBLE_EQ(p.floor(), 1.5);
  EXPECT_DOUBLE_EQ(p.efficiency(), 1.5 / wall);
  profiler.forget();
  const Profile none = profiler.finish(0);
  EXPECT_EQ(none.iterations, 0);
  EXPECT_EQ(none.charged(), 0);
  EXPECT_TRUE(none.spans.empty());
}

TEST(TrainingProfile, AddsUpToTheRecordsAndChangesNoBit) {
  for (const double threshold : {0.0, 0.5}) {
    TrainingOptions options = small_options();
    options.max_epochs = 6;
    if (threshold > 0) options.solver.gradient_threshold = threshold;
    options.validation.frequency = 2;
    const TrainingData data{.training = some_digits(60), .validation = some_digits(20, 100)};
    Network network = small_classifier(), plain = small_classifier();
    const TrainingResult with = train(network, data, options, {.profile = true});
    const TrainingResult without = train(plain, data, options);
    EXPECT_EQ(with.digest, without.digest);
    EXPECT_EQ(with.network_digest, without.network_digest);
    EXPECT_FALSE(without.profile);
    ASSERT_TRUE(with.profile);
    const Profile& p = *with.profile;
    EXPECT_EQ(p.iterations, 17);  // of 18, without the first
    double wall = 0;
    for (size_t i = 1; i < with.iterations.size(); ++i) wall += with.iterations[i].seconds;
    EXPECT_DOUBLE_EQ(p.wall, wall);
    EXPECT_NEAR(p.charged(), p.threads * wall, 1e-6);
    // Three shards of two sizes in each iteration.
    EXPECT_EQ(account(p, "convolution2d_1").calls, 3 * 17);
    EXPECT_EQ(account(p, "convolution2d_1: gradient").calls, 2 * 3 * 17);  // weights; bias
    // Once for each update range of a parameter.
    EXPECT_GE(account(p, "solver").calls, 17 * static_cast<int64_t>(network.parameters().size()));
    EXPECT_EQ(account(p, "solver").calls % 17, 0);
    EXPECT_EQ(account(p, "gradient threshold").calls > 0, threshold > 0);
    for (const ProfileAccount& a : p.accounts) {
      if (a.phase != Phase::iteration) {
        EXPECT_GT(a.floor, 0) << a.name;
      }
    }
    EXPECT_GT(p.efficiency(), 0);
    // Prepared by other threads, or by these if there are no more cores than threads.
    EXPECT_GT(p.preparation + account(p, "next mini-batch").seconds, 0);
  }
}

// With a shard for each core, the computing threads prepare mini-batches, else a separate thread
// does. The bits are the same.
TEST(TrainingProfile, ThreadsThatKeepAllCoresBusyPrepareMiniBatches) {
  TrainingOptions options = small_options();
  options.max_epochs = 4;
  options.threads = std::max(2, available_cores());
  options.shards.size = 1;
  options.mini_batch_size = std::max<int64_t>(options.threads, 8);
  const TrainingData data{.training = some_digits(4 * options.mini_batch_size)};
  Network network = small_classifier(), other = small_classifier();
  const TrainingResult helped = train(network, data, options, {.profile = true});
  ASSERT_TRUE(helped.profile);
  const double prepared = account(*helped.profile, "next mini-batch").seconds;
  EXPECT_GT(prepared, 0);
  options.threads = 1;
  const TrainingResult alone = train(other, data, options, {.profile = true});
  EXPECT_EQ(alone.digest, helped.digest);
  if (available_cores() > 1) {
    EXPECT_GT(alone.profile->preparation, 0);
    // Without these threads, other threads would have prepared it.
    EXPECT_GT(prepared, helped.profile->preparation);
    EXPECT_EQ(account(*alone.profile, "next mini-batch").seconds, 0);
  }
}

// A last mini-batch with one shard of another size. The floors of its plan count its own calls
// only.
TEST(TrainingProfile, FloorsAreOfTheShardsThatThereWere) {
  TrainingOptions options = small_options();
  options.max_epochs = 4;
  options.mini_batch_size = 32;
  options.shards.size = 16;
  options.data.last_mini_batch = LastMiniBatch::keep;
  Network network = small_classifier();
  const TrainingResult result =
      train(network, {.training = some_digits(67)}, options, {.profile = true});
  ASSERT_TRUE(result.profile);
  for (const ProfileAccount& a : result.profile->accounts) {
    if (a.phase == Phase::iteration || a.calls == 0) continue;
    EXPECT_GT(a.floor, 0) << a.name;
    EXPECT_LT(a.floor, 20 * a.seconds) << a.name;
  }
  // Four shards of 16 and one of 3 per epoch. The first mini-batch does not count.
  EXPECT_EQ(account(*result.profile, "convolution2d_1").calls, 4 * 5 - 2);
}

TEST(TrainingProfile, OfOneIterationIsOfThatOne) {
  TrainingOptions options = small_options();
  Network network = small_classifier();
  const TrainingResult result =
      train(network, {.training = some_digits(60)}, options, {.stop_after = 1, .profile = true});
  ASSERT_TRUE(result.profile);
  EXPECT_EQ(result.profile->iterations, 1);
  EXPECT_DOUBLE_EQ(result.profile->wall, result.iterations[0].seconds);
}

// A custom loop whose loss runs the network twice, and whose last mini-batch has a shard of another
// size.
struct CustomLoop {
  Digest digest;
  std::optional<Profile> profile;
  int meanwhile = 0;  // calls of other work by threads
};
struct OwnLoopWay {
  bool profile = false;
  bool ends = false;    // calls end_iteration()
  bool helped = false;  // threads prepare mini-batches
};
CustomLoop custom_loop(int iterations, const OwnLoopWay& way) {
  Network network = small_classifier();
  ShardGroup group(network, {.threads = 2, .shard_size = 16, .profile = way.profile});
  const ShardLoss loss = [](Shard& shard) {
    const Tensor once = ops::cross_entropy(shard.forward(shard[0]), shard[1]);
    return ops::add({once, ops::cross_entropy(shard.forward(shard[0]), shard[1])});
  };
  const auto images =
      std::make_shared<const ExampleCache>(some_digits(40), 28, 28, 1, size_t{1} << 20);
  MiniBatchQueue queue(images,
                       {.mini_batch_size = 40, .helped = way.helped, .max_epochs = iterations});
  std::atomic<int> meanwhile = 0;
  if (way.helped) {
    group.work_meanwhile([&](bool ahead) {
      const bool helped = queue.help(ahead);
      meanwhile += helped;
      return helped;
    });
  }
  EXPECT_FALSE(group.profile()) << "before the first call";
  SgdmState state;
  for (int64_t i = 1; queue.has_data(); ++i) {
    const auto batch = queue.next();
    const Tensor x = batch->input().tensor();
    const Tensor labels = Tensor::from(batch->labels(), {batch->size()});
    const auto step = sharded_value_and_gradient(loss, {x, labels}, group, i);
    spend(0.001);
    sgdm_update(network, step.gradients, state, {.learning_rate = 0.01});
    if (way.ends) group.end_iteration();
    spend(way.ends ? 0.02 : 0.001);
  }
  return {network_digest(network), group.profile(), meanwhile};
}

TEST(LoopProfile, AddsUpAndChangesNoBit) {
  constexpr int kIterations = 9;
  const CustomLoop with = custom_loop(kIterations, {.profile = true}),
                   without = custom_loop(kIterations, {.ends = true});
  EXPECT_EQ(with.digest, without.digest);
  EXPECT_FALSE(without.profile);
  ASSERT_TRUE(with.profile);
  const Profile& p = *with.profile;
  EXPECT_EQ(p.iterations, kIterations - 1);
  EXPECT_NEAR(p.charged(), p.threads * p.wall, 1e-6);
  // Three shards of 14 and 13 in each iteration, each run twice. Gradients of weights and biases
  // are one pass each.
  EXPECT_EQ(account(p, "convolution2d_1").calls, 2 * 3 * (kIterations - 1));
  EXPECT_EQ(account(p, "convolution2d_1: gradient").calls, 2 * 2 * 3 * (kIterations - 1));
  EXPECT_GE(account(p, "between calls").seconds, 0.002 * (kIterations - 1));
  for (const char* name : {"inputs of shards", "losses of shards", "results of shards",
                           "sums over shards", "mean gradients"}) {
    EXPECT_GT(account(p, name).seconds, 0) << name;
  }
  for (const ProfileAccount& a : p.accounts) {
    if (a.phase == Phase::iteration) continue;
    EXPECT_GT(a.floor, 0) << a.name;
    EXPECT_LT(a.floor, 20 * a.seconds) << a.name;
  }
  EXPECT_GT(p.efficiency(), 0);
  EXPECT_LT(p.efficiency(), 1.5);
}

TEST(LoopProfile, LeavesOutWhatComesAfterAnIterationsEnd) {
  const CustomLoop loop = custom_loop(9, {.profile = true, .ends = true});
  ASSERT_TRUE(loop.profile);
  const Profile& p = *loop.profile;
  EXPECT_EQ(p.iterations, 8);
  EXPECT_NEAR(p.charged(), p.threads * p.wall, 1e-6);
  const double between = account(p, "between calls").seconds;
  EXPECT_GE(between, 0.001 * 8);
  EXPECT_LT(between, 0.02 * 8);
}

TEST(LoopProfile, OfThreadsThatPrepareMiniBatchesMeanwhile) {
  const CustomLoop alone = custom_loop(9, {}),
                   helped = custom_loop(9, {.profile = true, .helped = true});
  EXPECT_EQ(helped.digest, alone.digest);
  EXPECT_EQ(alone.meanwhile, 0);
  EXPECT_GT(helped.meanwhile, 0);
  ASSERT_TRUE(helped.profile);
  EXPECT_GT(account(*helped.profile, "next mini-batch").seconds, 0);
}

TEST(LoopProfile, LeavesOutCallsThatFailed) {
  Network network = small_classifier();
  ShardGroup group(network, {.threads = 2, .shard_size = 16, .profile = true});
  const Tensor x = Tensor::zeros({20, 1, 28, 28}), y = Tensor::zeros({20}, DType::i32);
  const auto call = [&](bool fails) {
    const ShardLoss loss = [=](Shard& shard) {
      if (fails) throw DataError("no such label");
      return ops::cross_entropy(shard.forward(shard[0]), shard[1]);
    };
    sharded_value_and_gradient(loss, {x, y}, group, 1);
  };
  EXPECT_THROW(call(true), DataError);
  EXPECT_FALSE(group.profile());
  call(false);
  ASSERT_TRUE(group.profile());
  EXPECT_EQ(group.profile()->iterations, 1);
  EXPECT_THROW(call(true), DataError);
  EXPECT_EQ(group.profile()->iterations, 1) << "the one that did not fail stays";
  const int64_t each = account(*group.profile(), "convolution2d_1").calls;
  EXPECT_EQ(each, 2);
  call(false);
  call(false);
  EXPECT_EQ(group.profile()->iterations, 2) << "without the first";
  EXPECT_THROW(call(true), DataError);
  EXPECT_EQ(group.profile()->iterations, 2);
  call(false);
  EXPECT_THROW(call(true), DataError);
  const Profile p = *group.profile();
  EXPECT_EQ(p.iterations, 3);
  EXPECT_EQ(account(p, "convolution2d_1").calls, 3 * each);
  EXPECT_NEAR(p.charged(), p.threads * p.wall, 1e-6);
  // The runs' memory was freed, so there are no floors and nothing is read.
  network.initialize(9);
  ASSERT_TRUE(group.profile());
  EXPECT_EQ(group.profile()->iterations, 3);
}

TEST(LoopProfile, OfOneIterationIsOfThatOne) {
  const CustomLoop loop = custom_loop(1, {.profile = true});
  ASSERT_TRUE(loop.profile);
  EXPECT_EQ(loop.profile->iterations, 1);
  EXPECT_NEAR(loop.profile->charged(), 2 * loop.profile->wall, 1e-6);
}

TEST(TrainingProfile, OnADeviceIsRefused) {
  const devicetest::FakeDevice fake;
  TrainingOptions options = small_options();
  options.device = "cuda:0";
  Network network = small_classifier();
  EXPECT_THROW(train(network, {.training = some_digits(60)}, options, {.profile = true}),
               Unsupported);
}

}  // namespace
}  // namespace lockstep
