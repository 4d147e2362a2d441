// Shard checks: faulty workers are found and replaced.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/worker_context.h"
#include "tests/train/recovery.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::Failure;
using testing::Follower;
using testing::long_options;
using testing::losses;
using testing::undisturbed;

// Flips a bit of one gradient, as a processor fault would.
void flip_a_bit(const char*, int64_t iteration, int64_t shard, void* data, size_t bytes) {
  static std::atomic<unsigned char> calls = 0;
  const Failure& failure = testing::failure();
  if (failure.how == "unsteady") *static_cast<unsigned char*>(data) ^= ++calls;
  const bool flips = failure.how == "flip" || (failure.how == "flip once" && calls == 0);
  if (!flips || iteration != failure.iteration || shard != failure.shard) return;
  if (failure.worker != 0 && worker_context().worker() != failure.worker) return;
  ++calls;
  // In the last array, which is shorter than 64 bytes, so the bit is not in a layout's padding.
  static_cast<unsigned char*>(data)[bytes - 64 + 2] ^= 64;
}

TrainingProblem flipping_problem(Failure f) {
  testing::failure() = std::move(f);
  set_corruption_hook(flip_a_bit);
  return testing::law_problem();
}

TrainingResult run_flipping(const TrainingOptions& options, Follower& follower, const Failure& f) {
  const auto call = make_call<&flipping_problem>(f);
  TrainingProblem problem = testing::law_problem();
  TrainingControl control;
  control.observers.push_back(&follower);
  return train(call, problem.network, problem.data, options, control);
}

// A check in every fifth iteration. The third one, in iteration 15, checks shard 3, which belongs
// to worker 1. Workers 2 and 3, if present, compute it again.
TEST(Checks, AFaultyWorkerIsFoundAndReplaced) {
  for (const int64_t workers : {3, 4}) {
    for (const uint32_t faulty : {1u, 2u}) {
      Follower follower;
      TrainingOptions options = long_options(workers);
      options.shards.check_frequency = 5;
      const TrainingResult result = run_flipping(options, follower, {"", "flip", faulty, 15, 2});
      expect_undisturbed(result, follower, 60);
      const auto lost = losses(follower);
      ASSERT_EQ(lost.size(), 1u) << workers << " workers";
      EXPECT_EQ(lost[0].worker, faulty);
      EXPECT_NE(lost[0].how.find("shard 3 of iteration 15, computed several times, has "
                                 "different results: the gradient of "),
                std::string::npos)
          << lost[0].how;
      std::printf("worker %u %s\n", lost[0].worker, lost[0].how.c_str());
    }
  }
}

// With two workers and one difference, the faulty worker is found. If they always differ, both are
// suspect.
TEST(Checks, OfTwoWorkers) {
  TrainingOptions options = long_options(2);
  options.shards.check_frequency = 5;
  for (const uint32_t faulty : {1u, 2u}) {
    Follower follower;
    const TrainingResult result = run_flipping(options, follower, {"", "flip once", faulty, 15, 2});
    expect_undisturbed(result, follower, 60);
    ASSERT_EQ(losses(follower).size(), 1u);
    EXPECT_EQ(losses(follower)[0].worker, faulty);
    Follower other;
    EXPECT_THROW(run_flipping(options, other, {"", "flip", faulty, 15, 2}), Error);
  }
}

// Shows that the flip above has an effect.
TEST(Checks, WithoutThemAFlipGoesUnnoticed) {
  Follower follower;
  TrainingOptions options = long_options(2);
  options.shards.check_frequency = 0;
  const TrainingResult result = run_flipping(options, follower, {"", "flip", 1, 15, 2});
  EXPECT_NE(result.digest, undisturbed(60).digest);
  EXPECT_TRUE(losses(follower).empty());
}

TEST(Checks, WhatIsDifferentEveryTimeStopsTheRun) {
  for (const int64_t workers : {1, 2, 3}) {
    Follower follower;
    TrainingOptions options = long_options(workers);
    options.shards.check_frequency = 5;
    try {
      run_flipping(options, follower, {"", "unsteady", 0, 0, 0});
      FAIL() << workers << " workers went on";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("shard 1 of iteration 5, computed several times"),
                std::string::npos)
          << e.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
