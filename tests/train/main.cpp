// The worker processes of these tests also run this executable.
#include <gtest/gtest.h>

#include "lockstep/cluster/runtime.h"

int main(int argc, char** argv) {
  const lockstep::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
