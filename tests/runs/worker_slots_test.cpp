#include "lockstep/runs/sweeps/worker_slots.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

const TrialRun a{1, 0, 2}, b{2, 0, 2}, c{3, 0, 2};
using Slots = std::vector<int>;

TEST(WorkerSlots, RunsKeepTheirsAndGetThoseOfEndedRuns) {
  WorkerSlots slots(4);
  EXPECT_EQ(slots.of(a), Slots{});
  slots.assign({a, b, c}, {1, 1, 1});
  EXPECT_EQ(slots.of(a), Slots{0});
  EXPECT_EQ(slots.of(b), Slots{1});
  EXPECT_EQ(slots.of(c), Slots{2});
  slots.assign({b, c}, {2, 1});
  EXPECT_EQ(slots.of(a), Slots{});
  EXPECT_EQ(slots.of(b), (Slots{0, 1}));
  EXPECT_EQ(slots.of(c), Slots{2});
  slots.assign({c}, {4});
  EXPECT_EQ(slots.of(c), (Slots{0, 1, 2, 3}));
  // They are given back for another run.
  slots.assign({c, a}, {4, 1});
  EXPECT_EQ(slots.of(c).size(), 3u);
  EXPECT_EQ(slots.of(a).size(), 1u);
  slots.assign({c, a}, {1, 1});
  EXPECT_EQ(slots.of(c).size(), 1u);
}

TEST(WorkerSlots, IdleOnesAreTakenBeforeThoseOfOtherRuns) {
  WorkerSlots slots(4);
  slots.assign({a, b}, {2, 2});
  const Slots of_a = slots.of(a);
  slots.assign({a, c}, {2, 2});
  EXPECT_EQ(slots.of(a), of_a);
  EXPECT_EQ(slots.of(c).size(), 2u);
}

TEST(WorkerSlots, WorkersOfALostHostAreReplacedByOthers) {
  std::vector<bool> there{true, true, true, true};
  WorkerSlots slots(4, [&](int slot) { return there[static_cast<size_t>(slot)]; });
  slots.assign({a, b}, {1, 1});
  EXPECT_EQ(slots.of(a), Slots{0});
  there[0] = false;
  slots.assign({a, b}, {2, 1});
  EXPECT_EQ(slots.of(b), Slots{1});
  EXPECT_EQ(slots.of(a), (Slots{2, 3}));
  // Each run has one, even if none is there.
  there = {false, false, false, false};
  slots.assign({a, b}, {2, 2});
  EXPECT_EQ(slots.of(a).size(), 1u);
  EXPECT_EQ(slots.of(b).size(), 1u);
}

}  // namespace
}  // namespace lockstep
