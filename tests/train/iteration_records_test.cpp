#include "lockstep/train/workers/membership/iteration_records.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

IterationOutcome outcome(int64_t iteration, uint64_t value = 0) {
  IterationOutcome o;
  o.iteration = iteration;
  o.digest = digest_of(&value, sizeof value);
  o.seconds = static_cast<double>(iteration);
  return o;
}

TEST(IterationRecords, ComeInOrderHoweverTheyArrive) {
  IterationRecords records;
  records.begin(5);
  EXPECT_EQ(records.granted(), 4);
  EXPECT_EQ(records.add(1, {outcome(7)}), (IndexRange{5, 0}));
  EXPECT_EQ(records.add(2, {outcome(6), outcome(5)}), (IndexRange{5, 3}));
  EXPECT_EQ(records.received(), 7);
  EXPECT_EQ(records.seconds(), 7);
  EXPECT_TRUE(records.has(5));
  EXPECT_EQ(records.take(5).iteration, 5);
  EXPECT_FALSE(records.has(5));
  EXPECT_EQ(records.taken(), 5);
  EXPECT_EQ(records.add(3, {outcome(6)}), (IndexRange{8, 0}));  // it has arrived already
}

TEST(IterationRecords, DigestsOfAllWorkersMustBeEqual) {
  IterationRecords records;
  records.begin(1);
  records.add(1, {outcome(1, 10), outcome(2, 20)});
  EXPECT_THROW(records.add(2, {outcome(1, 11)}), Error);
  records.forget_before(2);
  records.add(2, {outcome(1, 11)});  // not known any more
  EXPECT_THROW(records.add(2, {outcome(2, 21)}), Error);
}

TEST(IterationRecords, ANewGroupRepeatsWhatItHasNot) {
  IterationRecords records;
  records.begin(1);
  records.grant(4);
  records.add(1, {outcome(1), outcome(2), outcome(4)});
  records.continue_after(1);
  EXPECT_EQ(records.granted(), 1);
  EXPECT_EQ(records.received(), 1);
  EXPECT_EQ(records.add(2, {outcome(2), outcome(3)}), (IndexRange{2, 2}));
  EXPECT_EQ(records.received(), 3);  // the record of 4 was of the former group
}

}  // namespace
}  // namespace lockstep
