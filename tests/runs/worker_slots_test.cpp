#include "lockstep/runs/sweeps/worker_slots.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

const TrialRun first{1, 0, 2}, second{2, 0, 2}, third{3, 0, 2};
using Slots = std::vector<int>;

TEST(WorkerSlots, RunsKeepTheirsAndGetThoseOfEndedRuns) {
  WorkerSlots slots(4);
  EXPECT_EQ(slots.of(first), Slots{});
  slots.assign({first, second, third}, {1, 1, 1});
  EXPECT_EQ(slots.of(first), Slots{0});
  EXPECT_EQ(slots.of(second), Slots{1});
  EXPECT_EQ(slots.of(third), Slots{2});
  slots.assign({second, third}, {2, 1});
  EXPECT_EQ(slots.of(first), Slots{});
  EXPECT_EQ(slots.of(second), (Slots{0, 1}));
  EXPECT_EQ(slots.of(third), Slots{2});
  slots.assign({third}, {4});
  EXPECT_EQ(slots.of(third), (Slots{0, 1, 2, 3}));
  // They are given back for another run.
  slots.assign({third, first}, {4, 1});
  EXPECT_EQ(slots.of(third).size(), 3u);
  EXPECT_EQ(slots.of(first).size(), 1u);
  slots.assign({third, first}, {1, 1});
  EXPECT_EQ(slots.of(third).size(), 1u);
}

TEST(WorkerSlots, IdleOnesAreTakenBeforeThoseOfOtherRuns) {
  WorkerSlots slots(4);
  slots.assign({first, second}, {2, 2});
  const Slots of_a = slots.of(first);
  slots.assign({first, third}, {2, 2});
  EXPECT_EQ(slots.of(first), of_a);
  EXPECT_EQ(slots.of(third).size(), 2u);
}

TEST(WorkerSlots, WorkersOfALostHostAreReplacedByOthers) {
  std::vector<bool> there{true, true, true, true};
  WorkerSlots slots(4, [&](int slot) { return there[static_cast<size_t>(slot)]; });
  slots.assign({first, second}, {1, 1});
  EXPECT_EQ(slots.of(first), Slots{0});
  there[0] = false;
  slots.assign({first, second}, {2, 1});
  EXPECT_EQ(slots.of(second), Slots{1});
  EXPECT_EQ(slots.of(first), (Slots{2, 3}));
  // Each run has one, even if none is there.
  there = {false, false, false, false};
  slots.assign({first, second}, {2, 2});
  EXPECT_EQ(slots.of(first).size(), 1u);
  EXPECT_EQ(slots.of(second).size(), 1u);
}

}  // namespace
}  // namespace lockstep
