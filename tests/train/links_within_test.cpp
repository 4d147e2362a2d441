// Where devices that come together listen is said by an environment variable of NCCL's, which is
// not left behind.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/train/device_links.h"

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

TEST(LinksWithin, LeavesNothingWhereTheAddressIsNotHere) {
  unsetenv(kInterface);
  EXPECT_THROW(LinksWithin("192.0.2.1"), Error);
  EXPECT_EQ(value(), "(none)");
  const LinksWithin within("");  // nobody holds it any more
  EXPECT_EQ(value(), "=lo");
}

TEST(LinksWithin, TwoWaitForEachOther) {
  unsetenv(kInterface);
  std::thread other;
  {
    const LinksWithin within("");
    other = std::thread([] {
      const LinksWithin mine("");
      EXPECT_EQ(value(), "=lo");
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(value(), "=lo");
  }
  other.join();
  EXPECT_EQ(value(), "(none)");
}

}  // namespace
}  // namespace lockstep
