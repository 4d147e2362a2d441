// Device links set an environment variable of NCCL that names the network interface, and unset it
// afterwards.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/train/iteration/devices/device_links.h"
#include "tests/base/waiting.h"

namespace lockstep {
namespace {

constexpr char kInterface[] = "NCCL_SOCKET_IFNAME";

std::string value() {
  const char* const text = getenv(kInterface);
  return text == nullptr ? "(none)" : text;
}

TEST(LinksWithin, SetsTheInterfaceForAsLongAsItLives) {
  unsetenv(kInterface);
  {
    const LinksWithin within("");
    EXPECT_EQ(value(), "=lo");
  }
  EXPECT_EQ(value(), "(none)");
  {
    const LinksWithin within("127.0.0.1");
    EXPECT_EQ(value(), "=lo");
  }
  EXPECT_EQ(value(), "(none)");
}

TEST(LinksWithin, LeavesTheUsersChoice) {
  setenv(kInterface, "eth7", 1);
  {
    const LinksWithin within("");
    EXPECT_EQ(value(), "eth7");
  }
  EXPECT_EQ(value(), "eth7");
  unsetenv(kInterface);
}

TEST(LinksWithin, LeavesNoVariableIfTheAddressIsElsewhere) {
  unsetenv(kInterface);
  EXPECT_THROW(LinksWithin("192.0.2.1"), Error);
  EXPECT_EQ(value(), "(none)");
  const LinksWithin within("");  // no other object holds the lock any more
  EXPECT_EQ(value(), "=lo");
}

TEST(LinksWithin, TwoWaitForEachOther) {
  unsetenv(kInterface);
  std::thread other;
  std::atomic<pid_t> waiter = 0;
  std::atomic<bool> within_too = false;
  {
    const LinksWithin within("");
    other = std::thread([&] {
      waiter = gettid();
      const LinksWithin mine("");
      within_too = true;
      EXPECT_EQ(value(), "=lo");
    });
    EXPECT_TRUE(testing::await([&] { return waiter != 0; }));
    EXPECT_TRUE(testing::comes_to_wait(getpid(), waiter));
    EXPECT_FALSE(within_too);
    EXPECT_EQ(value(), "=lo");
  }
  other.join();
  EXPECT_TRUE(within_too);
  EXPECT_EQ(value(), "(none)");
}

}  // namespace
}  // namespace lockstep
