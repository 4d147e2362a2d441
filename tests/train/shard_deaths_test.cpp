// Conviction of shards that end workers, and acquittal of shards that only ran beside them.
#include "lockstep/train/iteration/shard_deaths.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ShardDeaths, TheThirdDeathConvictsAShardThatWasAlone) {
  ShardDeaths deaths;
  EXPECT_EQ(deaths.note(9, {4, 5}, {}), std::nullopt);
  EXPECT_TRUE(deaths.suspects().empty());
  EXPECT_EQ(deaths.note(9, {3, 4}, {}), std::nullopt);
  const auto told = deaths.suspects();
  EXPECT_EQ(told, (std::vector<ShardOfIteration>{{9, 4}}));
  // Other shards of the iteration, and the same shard of another iteration, are not affected.
  EXPECT_EQ(deaths.note(9, {3}, told), std::nullopt);
  EXPECT_EQ(deaths.note(8, {4}, told), std::nullopt);
  EXPECT_EQ(deaths.note(9, {4}, told), 4);
}

TEST(ShardDeaths, NoShardIsConvictedWhileOthersRun) {
  ShardDeaths deaths;
  for (int i = 0; i < 9; ++i) EXPECT_EQ(deaths.note(1, {0, 1, 2}, deaths.suspects()), std::nullopt);
  EXPECT_EQ(deaths.suspects().size(), 3u);
  // Without the order to compute a shard alone it is not known to have been alone.
  EXPECT_EQ(deaths.note(1, {2}, {}), std::nullopt);
  EXPECT_EQ(deaths.note(1, {2}, deaths.suspects()), 2);
}

TEST(ShardDeaths, WhatIsFinishedIsForgotten) {
  ShardDeaths deaths;
  deaths.note(3, {1}, {});
  deaths.note(3, {1}, {});
  deaths.note(4, {1}, {});
  deaths.note(4, {1}, {});
  deaths.finished(3);
  EXPECT_EQ(deaths.suspects(), (std::vector<ShardOfIteration>{{4, 1}}));
  EXPECT_EQ(deaths.note(3, {}, {}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
