// Recordings of repeated work, and the log of those that failed.
#include "lockstep/engine/device/recording.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_log.h"
#include "tests/engine/devices/fake_device.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;

std::vector<std::string> logged_by(const std::function<void()>& work) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("recordings-" + std::to_string(getpid()));
  setenv("LOCKSTEP_DEVICE_LOG", path.c_str(), 1);
  work();
  unsetenv("LOCKSTEP_DEVICE_LOG");
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::filesystem::remove(path);
  return lines;
}

TEST(Recordings, AreLoggedOnceEach) {
  const FakeDevice fake;
  const DeviceStream stream(fake);
  Recording recording(memory_of(fake), stream.get());
  const auto lines = logged_by([&] {
    for (int i = 0; i < 5; ++i) recording.run([] {});
  });
  EXPECT_EQ(lines, std::vector<std::string>{R"({"recording":"made"})"});
}

// The work is done all the same, so nothing but the log tells.
TEST(Recordings, FailuresAreLoggedWithTheirReason) {
  const FakeDevice fake;
  const DeviceStream stream(fake);
  Recording recording(memory_of(fake), stream.get());
  int calls = 0;
  const auto lines = logged_by([&] {
    for (int i = 0; i < 4; ++i) {
      recording.run([&] {
        if (++calls == 2) throw Error("not \"this\"\nwork");
      });
    }
  });
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(lines, std::vector<std::string>{R"({"recording":"failed","why":"not \"this\" work"})"});
}

TEST(Recordings, AreNotLoggedWithoutAFile) {
  EXPECT_FALSE(has_device_log());
  add_to_device_log("{}");  // does nothing
  setenv("LOCKSTEP_DEVICE_LOG", "/no/such/folder/log", 1);
  add_to_device_log("{}");
  unsetenv("LOCKSTEP_DEVICE_LOG");
}

}  // namespace
}  // namespace lockstep
