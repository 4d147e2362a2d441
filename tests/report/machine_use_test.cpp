#include "lockstep/report/dashboard/machine_use.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/report/support.h"

namespace lockstep {
namespace {

using testing::within;

TEST(MachineUse, IsReadWithItsGpus) {
  MachineUse use(LOCKSTEP_STAND_IN_NVML);
  EXPECT_TRUE(within(60, [&] {
    use.refresh();
    const auto now = use.json();
    return now["gpus"].size() == 2 && now["busy"].is_number();
  }));
  EXPECT_GT(use.json()["memory_bytes"], 0);
  EXPECT_TRUE(use.json()["gpus_silent"].is_null());
}

// A GPU driver that hangs delays no other figure: GPUs are left out until they answer again.
TEST(MachineUse, GpusThatHangAreLeftOut) {
  void* const library = ::dlopen(LOCKSTEP_STAND_IN_NVML, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto hang = reinterpret_cast<void (*)(int)>(::dlsym(library, "stand_in_hangs"));
  ASSERT_NE(hang, nullptr);
  MachineUse use(LOCKSTEP_STAND_IN_NVML, 0.2);
  const auto refresh = [&] { use.refresh(); };
  ASSERT_TRUE(within(60, [&] { return refresh(), use.json()["gpus"].size() == 2; }));
  hang(1);
  std::vector<std::thread> readers;
  std::atomic<int> silent = 0;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      silent +=
          within(60, [&] { return refresh(), use.json()["gpus_silent"].is_number(); }) ? 1 : 0;
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(silent, 4);
  EXPECT_TRUE(use.json()["gpus"].empty());
  EXPECT_TRUE(use.json()["busy"].is_number());
  {
    MachineUse other(LOCKSTEP_STAND_IN_NVML, 0.2);
    other.refresh();
    EXPECT_TRUE(within(60, [&] { return other.json()["gpus_silent"].is_number(); }));
  }  // does not wait for the GPUs
  hang(0);
  EXPECT_TRUE(within(60, [&] { return refresh(), use.json()["gpus"].size() == 2; }));
}

}  // namespace
}  // namespace lockstep
