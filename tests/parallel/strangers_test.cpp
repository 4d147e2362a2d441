// Failed handshakes that are reported as strangers, and those that are not.
#include "lockstep/parallel/messages/strangers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lockstep {
namespace {

void wait(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(Strangers, AreCountedSoon) {
  Strangers strangers;
  EXPECT_EQ(strangers.count(2), 0) << "a worker's end may still be reported";
  wait(0.3);
  EXPECT_EQ(strangers.count(2), 2);
  EXPECT_EQ(strangers.count(2), 2);
}

TEST(Strangers, AWorkerThatDiedDuringItsStartIsNotAStranger) {
  Strangers strangers;
  // The worker's end may be reported before or after the end of its connection.
  strangers.starts(1);
  strangers.starts(2);
  EXPECT_EQ(strangers.count(1), 0);
  strangers.died(1);
  strangers.died(2);
  EXPECT_EQ(strangers.count(2), 0);
  wait(0.3);
  EXPECT_EQ(strangers.count(2), 0);
  // Each dismissal excuses one failure.
  EXPECT_EQ(strangers.count(3), 0);
  wait(0.3);
  EXPECT_EQ(strangers.count(3), 1);
}

TEST(Strangers, AConnectedWorkerExcusesNoStranger) {
  Strangers strangers;
  strangers.starts(1);
  EXPECT_EQ(strangers.count(1), 0);
  wait(0.3);
  EXPECT_EQ(strangers.count(1), 0) << "it may be the worker that starts";
  strangers.came(1, 0.3);
  EXPECT_EQ(strangers.count(1), 1);
  strangers.died(1);
  EXPECT_EQ(strangers.count(2), 1);
  wait(0.3);
  EXPECT_EQ(strangers.count(2), 2);
}

TEST(Strangers, ASlowStartIsNotAStranger) {
  Strangers strangers;
  strangers.starts(1);
  EXPECT_EQ(strangers.count(1), 0);
  strangers.came(1, 4);  // its second attempt
  wait(0.3);
  EXPECT_EQ(strangers.count(1), 0);
}

TEST(Strangers, AnExcuseDoesNotLast) {
  Strangers strangers;
  strangers.starts(1);
  strangers.died(1);
  wait(5.1);
  strangers.count(0);
  EXPECT_EQ(strangers.count(1), 0);
  wait(0.3);
  EXPECT_EQ(strangers.count(1), 1);
}

}  // namespace
}  // namespace lockstep
