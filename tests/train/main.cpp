// Worker processes of these tests run this executable, too.
#include <gtest/gtest.h>

#include "lockstep/parallel/process/runtime.h"

int main(int argc, char** argv) {
  const lockstep::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
