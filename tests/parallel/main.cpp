// Worker processes of these tests run this executable, too.
#include <gtest/gtest.h>

#include "lockstep/parallel/process/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
// libzmq loses a few bytes where a peer is refused because nobody checks keys any more.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libzmq"; }
#endif

int main(int argc, char** argv) {
  const lockstep::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
