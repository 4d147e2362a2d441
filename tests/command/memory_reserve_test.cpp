// What the command does where memory runs out. Each case ends a child process.
#include "apps/lockstep/memory_reserve.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <thread>

namespace lockstep::command {
namespace {

constexpr int kExitCode = 7;
constexpr const char* kMessage =
    "^error: there is not enough memory\nhint: limits of the shell: ulimit -v, ulimit -d\n$";

// Asks for more memory than an address space has. The result is kept, because compilers leave out
// unused memory.
void* volatile kept = nullptr;
[[maybe_unused]] void ask_for_too_much() { kept = ::operator new(size_t{1} << 62); }

template <class Body>
void without_exceptions(const Body& body) noexcept {
  body();
}

class MemoryReserve : public ::testing::Test {
 protected:
  // Begins anew in the child, which has one thread then.
  MemoryReserve() { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(MemoryReserve, ItsMessageComesWhereNoExceptionMayLeave) {
  const auto throws = [] { throw std::bad_alloc(); };
  EXPECT_EXIT(
      {
        keep_memory_reserve(kExitCode);
        without_exceptions(throws);
      },
      ::testing::ExitedWithCode(kExitCode), kMessage);
  EXPECT_EXIT(
      {
        keep_memory_reserve(kExitCode);
        std::thread(throws).join();
      },
      ::testing::ExitedWithCode(kExitCode), kMessage);
}

// Other exceptions end as they do in any program.
TEST_F(MemoryReserve, LeavesOtherEndsAsTheyAre) {
  EXPECT_EXIT(
      {
        keep_memory_reserve(kExitCode);
        without_exceptions([] { throw std::runtime_error("something else"); });
      },
      ::testing::KilledBySignal(SIGABRT), "something else");
  EXPECT_EXIT(
      {
        keep_memory_reserve(kExitCode);
        std::terminate();
      },
      ::testing::KilledBySignal(SIGABRT), "terminate called");
}

// The sanitizers have an operator new of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(MemoryReserve, AnAllocationThatFailsThrowsWhenTheReserveIsGone) {
  EXPECT_EXIT(
      {
        keep_memory_reserve(kExitCode);
        without_exceptions(&ask_for_too_much);
      },
      ::testing::ExitedWithCode(kExitCode), kMessage);
  EXPECT_EXIT(
      {
        keep_memory_reserve(kExitCode);
        try {
          ask_for_too_much();
        } catch (const std::bad_alloc&) {
          _exit(0);
        }
        _exit(1);
      },
      ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace lockstep::command
