// The worker processes of these tests also run this executable.
#include <gtest/gtest.h>

#include "lockstep/cluster/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
// libzmq leaks a few bytes when a peer is refused because the key check has ended.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libzmq"; }
#endif

int main(int argc, char** argv) {
  const lockstep::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
