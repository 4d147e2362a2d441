// The self-test of a device in child processes. The device is the CPU, whose kernels are tested
// with themselves; the children fail at named cases.
#include "lockstep/parallel/process/device_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/engine/kernels/backends/verdict_file.h"

namespace lockstep {
namespace {

// In a child: crashes, hangs or finds the device busy at the case that the environment names.
[[maybe_unused]] const bool kHook = [] {
  if (!std::getenv("DEVICE_TEST_FAULT")) return false;
  set_fail_point_hook([](const char* point, int64_t number, int64_t) {
    const std::string fault = std::getenv("DEVICE_TEST_FAULT");
    if (point != std::string("self-test") || number != std::atoll(fault.c_str() + 6)) return;
    if (fault.starts_with("crash ")) std::abort();
    if (fault.starts_with("taken ")) {
      throw Error("[cuda] all CUDA-capable devices are busy or unavailable");
    }
    std::this_thread::sleep_for(std::chrono::hours(1));
  });
  return true;
}();

// The verdict of two kernels if the child has a fault.
kernels::Verdict test_with(const char* fault, double patience = 20) {
  if (fault) setenv("DEVICE_TEST_FAULT", fault, 1);
  DeviceTestOptions options{.patience = patience, .large = false, .only = {"relu", "limit"}};
  const kernels::Verdict verdict = test_in_child({}, options);
  unsetenv("DEVICE_TEST_FAULT");
  return verdict;
}

int64_t first_case_of_relu() {
  // Found by the numbers of finished cases.
  static const int64_t first = [] {
    size_t smallest = SIZE_MAX;
    DeviceTestOptions options{.large = false, .only = {"relu"}};
    options.progress = [&](const DeviceTestProgress& p) {
      if (p.done > 0) smallest = std::min(smallest, p.done);
    };
    test_in_child({}, options);
    return static_cast<int64_t>(smallest) - 1;
  }();
  return first;
}

TEST(DeviceTest, KernelsPassInAChild) {
  const kernels::Verdict verdict = test_with(nullptr);
  EXPECT_EQ(verdict.state(), kernels::TestState::passed) << verdict.summary();
  EXPECT_TRUE(verdict.passed("relu"));
  EXPECT_TRUE(verdict.passed("limit"));
}

TEST(DeviceTest, ACrashIsTheFailureOfItsKernelAndOthersAreTested) {
  const auto fault = "crash " + std::to_string(first_case_of_relu());
  const kernels::Verdict verdict = test_with(fault.c_str());
  const kernels::KernelVerdict* const relu = verdict.find("relu", "f32");
  ASSERT_NE(relu, nullptr);
  EXPECT_EQ(relu->state, kernels::TestState::failed);
  EXPECT_NE(relu->seen.find("was killed by signal 6 (SIGABRT)"), std::string::npos) << relu->seen;
  EXPECT_TRUE(verdict.passed("limit")) << verdict.summary();
}

TEST(DeviceTest, AHangIsEndedAndReported) {
  const auto fault = "hangs " + std::to_string(first_case_of_relu());
  const kernels::Verdict verdict = test_with(fault.c_str(), 1);
  const kernels::KernelVerdict* const relu = verdict.find("relu", "f32");
  ASSERT_NE(relu, nullptr);
  EXPECT_EQ(relu->state, kernels::TestState::failed);
  EXPECT_NE(relu->seen.find("hung and was ended"), std::string::npos) << relu->seen;
  EXPECT_TRUE(verdict.passed("limit")) << verdict.summary();
  EXPECT_LT(verdict.seconds, 30);
}

TEST(DeviceTest, ABusyDeviceIsNotTested) {
  const auto fault = "taken " + std::to_string(first_case_of_relu());
  const kernels::Verdict verdict = test_with(fault.c_str());
  EXPECT_EQ(verdict.state(), kernels::TestState::not_tested) << verdict.summary();
  EXPECT_NE(verdict.reason.find("busy or unavailable"), std::string::npos) << verdict.reason;
}

// The CPU takes the place of a GPU with a UUID. The user's folder is a new one.
class StoredDeviceTest : public ::testing::Test {
 protected:
  StoredDeviceTest() {
    const char* const home = std::getenv("LOCKSTEP_HOME");
    if (home) before_ = home;
    setenv("LOCKSTEP_HOME", home_.c_str(), 1);
    info_.uuid = "GPU-1/2";
    info_.name = "a stand-in";
    options_.large = false;
    options_.only = {"relu"};
    options_.progress = [this](const DeviceTestProgress& p) { tests_ += p.ended ? 1 : 0; };
  }
  ~StoredDeviceTest() override {
    std::filesystem::remove_all(home_);
    before_.empty() ? unsetenv("LOCKSTEP_HOME") : setenv("LOCKSTEP_HOME", before_.c_str(), 1);
  }
  std::string lock() const { return kernels::verdict_folder() + "/GPU-1-2.lock"; }
  // A whole verdict, which another process has found.
  void write() const {
    kernels::Verdict verdict;
    verdict.kernels = {{.kernel = "relu", .type = "f32", .cases = 77}};
    kernels::write_verdict(kernels::verdict_folder(), kernels::verdict_key(info_), verdict);
  }
  bool is_stored() const {
    return kernels::read_verdict(kernels::verdict_folder(), kernels::verdict_key(info_))
        .verdict.has_value();
  }

  const std::string home_ =
      (std::filesystem::temp_directory_path() / ("device_test_" + std::to_string(getpid())))
          .string();
  std::string before_;
  kernels::DeviceInfo info_;
  DeviceTestOptions options_;
  int tests_ = 0;
};

TEST_F(StoredDeviceTest, AVerdictIsFoundAgainUntilATestIsAskedFor) {
  write();
  EXPECT_EQ(test_and_store(info_, false, options_).kernels.at(0).cases, 77);
  EXPECT_EQ(tests_, 0);
  const kernels::Verdict again = test_and_store(info_, true, options_);
  EXPECT_EQ(tests_, 1);
  EXPECT_TRUE(again.passed("relu"));
  EXPECT_NE(again.kernels.at(0).cases, 77);
  // Another build, driver or GPU has no verdict yet.
  info_.uuid = "GPU-3";
  EXPECT_FALSE(is_stored());
}

TEST_F(StoredDeviceTest, OneProcessTestsAndTheOthersWaitForItsVerdict) {
  std::filesystem::create_directories(kernels::verdict_folder());
  std::optional<FileLock> held = FileLock::take(lock());
  ASSERT_TRUE(held);
  auto other =
      std::async(std::launch::async, [&] { return test_and_store(info_, false, options_); });
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  write();
  held.reset();
  EXPECT_EQ(other.get().kernels.at(0).cases, 77);
  EXPECT_EQ(tests_, 0);
}

TEST_F(StoredDeviceTest, ABusyDeviceIsTestedAtTheNextUse) {
  const auto fault = "taken " + std::to_string(first_case_of_relu());
  setenv("DEVICE_TEST_FAULT", fault.c_str(), 1);
  const kernels::Verdict busy = test_and_store(info_, false, options_);
  unsetenv("DEVICE_TEST_FAULT");
  EXPECT_EQ(busy.state(), kernels::TestState::not_tested);
  EXPECT_FALSE(is_stored());
}

// A case under way when the time for everything is over says nothing about its kernel.
TEST_F(StoredDeviceTest, WhatTheTimeDoesNotSufficeForIsTestedAtTheNextUse) {
  setenv("DEVICE_TEST_FAULT", "hangs 1", 1);
  options_.seconds = 4;
  options_.only = {};
  const kernels::Verdict verdict = test_and_store(info_, false, options_);
  unsetenv("DEVICE_TEST_FAULT");
  EXPECT_EQ(verdict.state(), kernels::TestState::not_tested) << verdict.summary();
  EXPECT_NE(verdict.summary().find("the time was over"), std::string::npos) << verdict.summary();
  EXPECT_LT(verdict.seconds, 15);
  EXPECT_FALSE(is_stored());
}

TEST(DeviceTest, ADeviceThatIsNotThereIsNotTested) {
  const kernels::Verdict verdict = test_in_child({Device::Kind::cuda, 63}, {});
  EXPECT_EQ(verdict.state(), kernels::TestState::not_tested);
  EXPECT_NE(verdict.reason.find("cuda:63 cannot be used"), std::string::npos) << verdict.reason;
}

}  // namespace
}  // namespace lockstep
