#include "lockstep/runs/sweeps/thread_shares.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Shares = std::vector<int64_t>;
constexpr TrialRun a{1, 0, 1}, b{2, 0, 1}, c{3, 0, 1};

// A run that has shown its rates with up to so many threads, each twice as fast.
void prove(ThreadShares& shares, const TrialRun& run, int64_t shards, int64_t most) {
  for (int64_t threads = 1; threads <= most; threads *= 2) {
    shares.note(run, shards, threads, 50, 1000.0 * static_cast<double>(threads));
  }
}

TEST(SweepThreads, IdleThreadsGoToTheRunsThatAreLeft) {
  ThreadShares shares(8);
  shares.divide({a, b, c});
  for (const TrialRun& run : {a, b, c}) prove(shares, run, 16, 2);
  EXPECT_EQ(shares.divide({a, b, c}), (Shares{3, 3, 2}));
  EXPECT_EQ(shares.divide({b, c}), (Shares{2, 2}));  // as before, until their rates are known
  for (const TrialRun& run : {b, c}) shares.note(run, 16, 2, 100, 2000);
  EXPECT_EQ(shares.divide({b, c}), (Shares{4, 4}));
  shares.divide({c});
  shares.note(c, 16, 4, 100, 4000);
  EXPECT_EQ(shares.divide({c}), (Shares{8}));
}

TEST(SweepThreads, EveryRunHasAThread) {
  ThreadShares shares(2);
  shares.divide({a, b, c});
  for (const TrialRun& run : {a, b, c}) prove(shares, run, 16, 1);
  EXPECT_EQ(shares.divide({a, b, c}), (Shares{1, 1, 1}));
  EXPECT_TRUE(shares.divide({}).empty());
}

TEST(SweepThreads, NoMoreThanShards) {
  ThreadShares shares(8);
  shares.divide({a, b});
  prove(shares, a, 2, 2);
  prove(shares, b, 16, 4);
  EXPECT_EQ(shares.divide({a, b}), (Shares{2, 6}));
}

TEST(SweepThreads, ARunThatPreparesNeedsNoOthers) {
  ThreadShares shares(8);
  shares.divide({a, b});
  prove(shares, b, 16, 4);
  EXPECT_EQ(shares.divide({a, b}), (Shares{1, 7}));
}

TEST(SweepThreads, ThreadsThatSaveNothingAreTakenBack) {
  ThreadShares shares(8);
  shares.divide({a});
  EXPECT_EQ(shares.divide({a}), (Shares{1}));  // its rate is not known
  shares.note(a, 16, 1, 50, 1000);
  EXPECT_EQ(shares.divide({a}), (Shares{2}));  // doubled step by step
  shares.note(a, 16, 2, 3, 100);               // too few iterations to tell
  EXPECT_EQ(shares.divide({a}), (Shares{2}));
  shares.note(a, 16, 2, 20, 1900);
  EXPECT_EQ(shares.divide({a}), (Shares{4}));
  shares.note(a, 16, 4, 20, 1920);
  EXPECT_EQ(shares.divide({a}), (Shares{2}));
}

// Beside others a run is slow. Alone it may be as fast with one thread as with two.
TEST(SweepThreads, RatesBesideOtherRunsDoNotCountLater) {
  ThreadShares shares(2);
  shares.divide({a, b});
  shares.note(a, 16, 1, 50, 500);
  EXPECT_EQ(shares.divide({a, b}), (Shares{1, 1}));
  EXPECT_EQ(shares.divide({a}), (Shares{1}));
  shares.note(a, 16, 1, 60, 700);  // mostly of the time before
  EXPECT_EQ(shares.divide({a}), (Shares{1}));
  shares.note(a, 16, 1, 80, 1000);
  EXPECT_EQ(shares.divide({a}), (Shares{2}));
  shares.note(a, 16, 2, 30, 900);  // faster than beside others, but not faster than alone
  EXPECT_EQ(shares.divide({a}), (Shares{1}));
}

// A run keeps the threads that have made it faster when the number of runs changes, and in its next
// rung. It does not keep threads that saved nothing.
TEST(SweepThreads, ThatMadeARunFasterStayWhenTheNumberOfRunsChanges) {
  ThreadShares shares(8);
  shares.divide({a, b});
  prove(shares, a, 16, 4);
  shares.note(b, 16, 1, 50, 1000);
  shares.note(b, 16, 2, 50, 1010);  // no gain
  EXPECT_EQ(shares.divide({a, b}), (Shares{7, 1}));
  EXPECT_EQ(shares.divide({a, b, c}), (Shares{4, 1, 1}));
  // More than that when their rate is known beside the others.
  shares.note(a, 16, 4, 60, 4000);  // too few iterations since then
  EXPECT_EQ(shares.divide({a, b, c}), (Shares{4, 1, 1}));
  shares.note(a, 16, 4, 80, 4000);
  EXPECT_EQ(shares.divide({a, b, c}), (Shares{6, 1, 1}));
  // The next rung of the trial has 20 iterations behind it.
  const TrialRun next{a.trial, a.repeat, 2};
  EXPECT_EQ(shares.divide({next}), (Shares{4}));
  shares.note(next, 16, 4, 20, 4000);
  EXPECT_EQ(shares.divide({next}), (Shares{8}));
  shares.note(next, 16, 8, 20, 4100);  // no gain
  EXPECT_EQ(shares.divide({next}), (Shares{4}));
}

}  // namespace
}  // namespace lockstep
