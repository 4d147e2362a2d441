// The device for "auto" if the user has chosen one.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/loading.h"
#include "tests/engine/devices/fake_device.h"

namespace lockstep::kernels {
namespace {

TEST(ChosenDevice, IsWhatAutoStandsForInItsThread) {
  const devicetest::FakeDevice first(0), second(1);
  EXPECT_EQ(chosen_device(), std::nullopt);
  EXPECT_EQ(choose_device(second), std::nullopt);
  EXPECT_EQ(resolve_device("auto"), second.device());
  EXPECT_EQ(resolve_device("cuda:0"), first.device());
  EXPECT_EQ(resolve_device("cpu"), Device{});
  std::optional<Device> elsewhere = Device{};
  std::thread([&] { elsewhere = chosen_device(); }).join();
  EXPECT_EQ(elsewhere, std::nullopt);

  EXPECT_EQ(choose_device(Device{}), second.device());
  EXPECT_EQ(resolve_device("auto"), Device{});
  EXPECT_THROW(choose_device(parse_device("cuda:77")), Unsupported);
  EXPECT_EQ(chosen_device(), Device{}) << "what cannot be used changes nothing";
  EXPECT_EQ(choose_device(std::nullopt), Device{});
  EXPECT_EQ(chosen_device(), std::nullopt);
}

// Unsupported work on the chosen device is an error, and no other device is tried.
TEST(ChosenDevice, IsNotPassedOver) {
  const devicetest::FakeDevice gpu;
  choose_device(gpu);
  const auto cannot = [](Device) { throw Unsupported("not this"); };
  EXPECT_THROW(resolve_device("auto", cannot), Unsupported);
  choose_device(std::nullopt);
}

}  // namespace
}  // namespace lockstep::kernels
