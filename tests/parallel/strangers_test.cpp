// Failed handshakes that are reported as strangers, and those that are not.
#include "lockstep/parallel/messages/strangers.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Strangers, AreCountedWhileNoWorkerStarts) {
  Strangers strangers;
  EXPECT_EQ(strangers.count(2), 2);
  strangers.starts();
  EXPECT_EQ(strangers.count(3), 2) << "it may be the worker that starts";
  strangers.came(0.3);
  EXPECT_EQ(strangers.count(3), 3);
  EXPECT_EQ(strangers.count(3), 3);
}

TEST(Strangers, AWorkerThatDiedDuringItsStartIsNotAStranger) {
  Strangers strangers;
  // The worker's end may be reported before or after the end of its connection.
  strangers.starts();
  strangers.starts();
  EXPECT_EQ(strangers.count(1), 0);
  strangers.died(1);
  strangers.died(1);
  EXPECT_EQ(strangers.count(1), 0);
  EXPECT_EQ(strangers.count(2), 0);
  EXPECT_EQ(strangers.count(3), 1);
}

TEST(Strangers, ASlowStartIsNotAStranger) {
  Strangers strangers;
  strangers.starts();
  EXPECT_EQ(strangers.count(1), 0);
  strangers.came(4);  // its second attempt
  EXPECT_EQ(strangers.count(1), 0);
  EXPECT_EQ(strangers.count(2), 1);
}

TEST(Strangers, AreNeverTakenBack) {
  Strangers strangers;
  EXPECT_EQ(strangers.count(2), 2);
  strangers.starts();
  strangers.died(1);  // without a handshake
  EXPECT_EQ(strangers.count(2), 2);
  EXPECT_EQ(strangers.count(3), 2);
  EXPECT_EQ(strangers.count(4), 3);
}

}  // namespace
}  // namespace lockstep
