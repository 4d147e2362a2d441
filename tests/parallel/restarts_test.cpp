// When lost processes are replaced, and when the replacement is given up.
#include "lockstep/parallel/pool/processes/restarts.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::detail {
namespace {

int failures_until_hopeless(bool outside) {
  Restarts restarts;
  int failures = 1;
  while (!restarts.plan_after_failure(3, outside)) ++failures;
  EXPECT_TRUE(restarts.plan_after_failure(3, outside)) << "each time from then on";
  return failures;
}

TEST(Restarts, AreGivenUpSoonerWhereProcessesEndByThemselves) {
  EXPECT_EQ(failures_until_hopeless(false), 8);
  EXPECT_EQ(failures_until_hopeless(true), 30);
}

// A host that does not answer takes long to fail, and so would all attempts.
TEST(Restarts, AreGivenUpSoonerWhereAttemptsTakeLong) {
  Restarts slow(0);
  EXPECT_FALSE(slow.plan_after_failure(3, false));
  EXPECT_FALSE(slow.plan_after_failure(3, false));
  EXPECT_TRUE(slow.plan_after_failure(3, false));
  EXPECT_FALSE(slow.plan_after_failure(4, false)) << "another one";
  slow.succeeded(3);
  EXPECT_FALSE(slow.plan_after_failure(3, false)) << "the count begins again";
  Restarts outside(0);
  for (int i = 1; i < 30; ++i) EXPECT_FALSE(outside.plan_after_failure(3, true)) << i;
}

TEST(Restarts, KnowWhatIsGivenUp) {
  Restarts restarts;
  EXPECT_FALSE(restarts.given_up(3));
  EXPECT_FALSE(restarts.plan_after_failure(3, false));
  EXPECT_FALSE(restarts.given_up(3)) << "the next one may succeed";
  EXPECT_TRUE(restarts.plan_after_failure(3, false, true)) << "any other would fail the same way";
  EXPECT_TRUE(restarts.given_up(3));
  EXPECT_TRUE(restarts.plan_after_failure(3, true)) << "however the next one ends";
  EXPECT_FALSE(restarts.given_up(4)) << "another one";
  restarts.succeeded(3);
  EXPECT_FALSE(restarts.given_up(3));
}

TEST(Restarts, SlowDownHoweverProcessesEnd) {
  for (const bool outside : {false, true}) {
    Restarts restarts;
    for (int i = 0; i < 2; ++i) restarts.plan_after_failure(0, outside);
    EXPECT_EQ(restarts.take_due(), (std::vector<int>{0, 0}));
    for (int i = 0; i < 4; ++i) restarts.plan_after_failure(0, outside);
    EXPECT_TRUE(restarts.take_due().empty());
    EXPECT_GT(restarts.wait(10), 0.02);
    // After a successful start the count begins again.
    Restarts others;
    for (int i = 0; i < 2; ++i) others.plan_after_failure(0, outside);
    others.take_due();
    others.succeeded(0);
    others.plan_after_failure(0, outside);
    EXPECT_EQ(others.take_due(), std::vector<int>{0});
  }
}

}  // namespace
}  // namespace lockstep::detail
