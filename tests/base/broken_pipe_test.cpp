#include "lockstep/base/os/broken_pipe.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace lockstep {
namespace {

// A connection whose other end is closed.
class Broken {
 public:
  Broken() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    close(ends[1]);
    end_ = ends[0];
  }
  ~Broken() { close(end_); }
  Broken(const Broken&) = delete;
  Broken& operator=(const Broken&) = delete;
  ssize_t write_to() const { return write(end_, "x", 1); }

 private:
  int end_;
};

bool is_pending() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

bool is_blocked() {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return sigismember(&now, SIGPIPE) == 1;
}

TEST(NoBrokenPipe, MakesAnErrorOfTheSignal) {
  const Broken broken;
  ASSERT_FALSE(is_blocked());
  {
    const NoBrokenPipe none;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(broken.write_to(), -1);
      EXPECT_EQ(errno, EPIPE);
    }
    const NoBrokenPipe within;
    EXPECT_EQ(broken.write_to(), -1);
  }
  EXPECT_FALSE(is_blocked());
  EXPECT_FALSE(is_pending());
}

TEST(NoBrokenPipeDeathTest, IsOverWithTheScope) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        { const NoBrokenPipe none; }
        const Broken broken;
        broken.write_to();
      },
      ::testing::KilledBySignal(SIGPIPE), "");
}

TEST(NoBrokenPipe, LeavesASignalOfOthersPending) {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const Broken broken;
  EXPECT_EQ(broken.write_to(), -1);
  ASSERT_TRUE(is_pending());
  {
    const NoBrokenPipe none;
    EXPECT_EQ(broken.write_to(), -1);
  }
  EXPECT_TRUE(is_pending());
  EXPECT_TRUE(is_blocked());
  const timespec now{};
  sigtimedwait(&pipe, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace lockstep
