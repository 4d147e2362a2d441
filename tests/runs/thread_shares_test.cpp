#include "lockstep/runs/sweeps/thread_shares.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Shares = std::vector<int64_t>;
constexpr TrialRun a{1, 0, 1}, b{2, 0, 1}, c{3, 0, 1};

TEST(SweepThreads, IdleThreadsGoToTheRunsThatAreLeft) {
  ThreadShares shares(8);
  for (const TrialRun& run : {a, b, c}) shares.note(run, 16, 1, 0, 0);
  EXPECT_EQ(shares.divide({a, b, c}), (Shares{3, 3, 2}));
  EXPECT_EQ(shares.divide({b, c}), (Shares{4, 4}));
  EXPECT_EQ(shares.divide({c}), (Shares{8}));
}

TEST(SweepThreads, EveryRunHasAThread) {
  ThreadShares shares(2);
  for (const TrialRun& run : {a, b, c}) shares.note(run, 16, 1, 0, 0);
  EXPECT_EQ(shares.divide({a, b, c}), (Shares{1, 1, 1}));
  EXPECT_TRUE(shares.divide({}).empty());
}

TEST(SweepThreads, NoMoreThanShards) {
  ThreadShares shares(8);
  shares.note(a, 2, 1, 0, 0);
  shares.note(b, 16, 1, 0, 0);
  EXPECT_EQ(shares.divide({a, b}), (Shares{2, 6}));
}

TEST(SweepThreads, ARunThatPreparesNeedsNoOthers) {
  ThreadShares shares(8);
  shares.note(b, 16, 1, 0, 0);
  EXPECT_EQ(shares.divide({a, b}), (Shares{1, 7}));
}

TEST(SweepThreads, ThreadsThatSaveNothingAreTakenBack) {
  ThreadShares shares(8);
  shares.note(a, 16, 1, 50, 1000);
  shares.note(a, 16, 8, 3, 100);  // too few iterations to tell
  EXPECT_EQ(shares.divide({a}), (Shares{8}));
  shares.note(a, 16, 8, 20, 1020);
  EXPECT_EQ(shares.divide({a}), (Shares{1}));
  shares.note(b, 16, 1, 50, 1000);
  shares.note(b, 16, 7, 50, 5000);
  EXPECT_EQ(shares.divide({a, b}), (Shares{1, 7}));
}

}  // namespace
}  // namespace lockstep
