// Recordings of repeated work, and the log of those that failed.
#include "lockstep/engine/device/recording.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_log.h"
#include "lockstep/engine/device/pinned.h"
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

// Work of several streams in one recording: the copies run in order.
TEST(Recordings, HoldWorkOfSeveralStreams) {
  const FakeDevice fake;
  DeviceMemory& memory = memory_of(fake);
  const DeviceStream first(fake), second(fake);
  const Memory there = allocate(2 * sizeof(int), fake);
  auto* const a = there.as<int>();
  int value = 0, back = 0;
  const Pinned from(memory, sizeof value);
  Recording recording(memory, first.get());
  for (value = 1; value <= 4; ++value) {
    memory.synchronize(first.get());
    std::memcpy(from.data(), &value, sizeof value);
    recording.run([&] {
      memory.copy_from_host(a, from.data(), sizeof value, first.get());
      memory.follow(second.get(), first.get());
      memory.copy(a + 1, a, sizeof value, second.get());
      memory.follow(first.get(), second.get());
    });
    memory.copy_to_host(&back, a + 1, sizeof back, first.get());
    memory.synchronize(first.get());
    EXPECT_EQ(back, value);
  }
  EXPECT_EQ(fake.recordings(), 1);
  EXPECT_EQ(fake.replays(), 3);
  EXPECT_FALSE(recording.failed());
}

// As with CUDA: a recording may not wait for other work, and ends with all its streams joined.
TEST(Recordings, FailWhereStreamsAreNotOrdered) {
  const FakeDevice fake;
  DeviceMemory& memory = memory_of(fake);
  const DeviceStream first(fake), second(fake);
  const Memory there = allocate(64, fake);
  const int64_t failed = recording_figures().failed;
  Recording waits(memory, first.get()), forks(memory, first.get());
  for (int i = 0; i < 3; ++i) {
    waits.run([&] { memory.follow(first.get(), memory.default_stream()); });
    forks.run([&] {
      memory.follow(second.get(), first.get());
      memory.zero(there.data(), 64, second.get());
    });
  }
  EXPECT_EQ(recording_figures().failed - failed, 2);
  EXPECT_TRUE(waits.failed());
  EXPECT_TRUE(forks.failed());
  EXPECT_EQ(fake.replays(), 0);
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
