// Ops and the tape on a stand-in for a device.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/engine/ops/cases.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;

TEST(DeviceOps, EveryCaseMatchesTheReference) {
  const FakeDevice fake(0, {.large_pages = true});
  for (const auto& c : optest::offered_cases(fake)) {
    SCOPED_TRACE(c);
    optest::check_forward(fake, c);
    optest::check_gradients(fake, c);
  }
}

TEST(DeviceOps, OutputsAndGradientsLieWhereTheInputsDo) {
  const FakeDevice fake(0, {.large_pages = true});
  const Tensor x = Tensor::from(std::vector<float>{1, -2, 3}, Shape{3}).to(fake);
  const Tensor unused = Tensor::zeros({2}, DType::f32, fake);
  Tape tape;
  tape.watch(x);
  tape.watch(unused);
  const Tensor y = ops::relu(x);
  const Tensor sum = ops::sum(ops::add({y, x}));
  EXPECT_EQ(y.device(), fake.device());
  EXPECT_EQ(sum.item(), 6);
  const auto gradients = tape.gradient(sum, {x, unused});
  EXPECT_EQ(gradients[0].device(), fake.device());
  EXPECT_EQ(gradients[0].to_vector(), (std::vector<float>{2, 1, 2}));
  EXPECT_EQ(gradients[1].device(), fake.device());
  EXPECT_EQ(gradients[1].to_vector(), (std::vector<float>{0, 0}));
}

TEST(DeviceOps, TensorsOnTwoDevicesDoNotMix) {
  const FakeDevice fake(0, {.large_pages = true});
  const Tensor here = Tensor::full({3}, 1), there = here.to(fake);
  try {
    ops::add({here, there});
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[add] tensors on cpu and on cuda:0 cannot be combined");
    EXPECT_EQ(error.hint(), "move one of them: tensor.to(device)");
  }
}

}  // namespace
}  // namespace lockstep
