// Number formats and algorithms of trainings on a device with streams.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/devices.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/device_runs.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::digits;
using testing::expect_same;
using testing::expect_same_training;
using testing::options_for;
using testing::Outcome;
using testing::run;
using testing::small_classifier;

TEST(DeviceStep, Bf16HasTheBitsOfTheCpu) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const FakeDevice fake;
  const auto with = [](const std::string& device, int streams) {
    TrainingOptions options = options_for(device, streams);
    options.precision.type = Precision::bf16;
    return options;
  };
  const Outcome whole = run(with("cpu", 1));
  EXPECT_NE(whole.values, run(options_for("cpu")).values);
  for (const int streams : {1, 3}) {
    const Outcome there = run(with("cuda:0", streams));
    expect_same_training(there, whole);
    // A device validates in bf16, threads in fp32.
    const double loss = there.result.validations.at(0).loss;
    EXPECT_NE(loss, whole.result.validations.at(0).loss);
    EXPECT_NEAR(loss, whole.result.validations.at(0).loss, 0.01 * loss);
  }
}

// A loss scale multiplies gradients only until they are added, also with thresholds and weights.
TEST(DeviceStep, TheScaleOfLossesChangesNothingInFp32) {
  const FakeDevice fake;
  using Method = GradientThresholdMethod;
  for (const auto& [method, threshold] :
       {std::pair{Method::l2norm, 0.0}, std::pair{Method::global_l2norm, 0.02},
        std::pair{Method::absolute_value, 0.02}}) {
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(static_cast<int>(method));
      TrainingOptions options = options_for("cpu");
      options.solver.gradient_threshold = threshold;
      options.solver.gradient_threshold_method = method;
      if (weighted) options.class_weights = {1, 2, 3, 1, 0.5, 0.3, 1, 1, 7, 1};
      const Outcome once = run(options);
      options.precision.loss_scale = 4096;
      expect_same(run(options), once);
      options.device = "cuda:0";
      expect_same(run(options), once);
    }
  }
}

TEST(DeviceStep, Fp16IsRefusedWithoutSupport) {
  const FakeDevice fake;
  for (const char* device : {"cpu", "cuda:0"}) {
    TrainingOptions options = options_for(device);
    options.precision.type = Precision::fp16;
    EXPECT_EQ(options.resolved().precision.loss_scale, 128);
    const std::string message = testing::message_of<Unsupported>([&] { run(options); });
    EXPECT_NE(message.find("f16 is not supported on this device"), std::string::npos) << message;
  }
}

std::vector<kernels::Choice> choices;  // of the convolutions that were made
std::vector<int64_t> rows_of_choices;
kernels::Kernel (*make_convolution)(const kernels::ConvolutionProblem&) = nullptr;

kernels::Kernel convolution_noting_choice(const kernels::ConvolutionProblem& p) {
  choices.push_back(kernels::choice());
  rows_of_choices.push_back(p.src.shape[0]);
  return make_convolution(p);
}

// The choice applies to this training's plans only, not to another training beside it.
TEST(DeviceStep, ChoosesAlgorithmsForItsPlansAlone) {
  const FakeDevice fake;
  const kernels::Table& whole = kernels::table_for(fake);
  kernels::Table noting = whole;
  make_convolution = whole.convolution;
  noting.convolution = convolution_noting_choice;
  kernels::register_table(fake, &noting);
  TrainingOptions options = options_for("cuda:0");
  const Outcome wide = run(options);
  const auto made = [&](bool deterministic, bool tf32) {
    return std::count_if(choices.begin(), choices.end(), [&](const kernels::Choice& c) {
      return c.deterministic == deterministic && c.tf32 == tf32;
    });
  };
  EXPECT_EQ(made(true, false), static_cast<int64_t>(choices.size()));
  options.precision.type = Precision::tf32;
  options.deterministic = false;
  choices.clear();
  rows_of_choices.clear();
  expect_same(run(options), wide);  // the stand-in has no other algorithm
  EXPECT_GT(made(false, true), 0);
  // Validation, too.
  const auto most = std::max_element(rows_of_choices.begin(), rows_of_choices.end());
  EXPECT_EQ(*most, DeviceBatches::kMostRows);
  EXPECT_TRUE(choices[static_cast<size_t>(most - rows_of_choices.begin())].tf32);
  EXPECT_EQ(made(false, true) + made(true, false), static_cast<int64_t>(choices.size()));
  EXPECT_TRUE(kernels::choice().deterministic);
  EXPECT_FALSE(kernels::choice().tf32);
  EXPECT_TRUE(deterministic());
  kernels::register_table(fake, &whole);
  options.device = "cpu";
  const std::string message = testing::message_of<Unsupported>([&] { run(options); });
  EXPECT_NE(message.find("precision = tf32 is supported only on GPUs"), std::string::npos)
      << message;
}

TEST(ThreadChoice, IsTheThreadsAlone) {
  const bool before = set_deterministic(false);
  EXPECT_FALSE(kernels::choice().deterministic);
  {
    const kernels::ThreadChoice outer({.deterministic = true, .tf32 = true});
    EXPECT_TRUE(kernels::choice().deterministic);
    std::thread([] {
      EXPECT_FALSE(kernels::choice().deterministic);
      EXPECT_FALSE(kernels::choice().tf32);
    }).join();
    {
      const kernels::ThreadChoice inner({.deterministic = false});
      EXPECT_FALSE(kernels::choice().deterministic);
    }
    EXPECT_TRUE(kernels::choice().tf32);
  }
  EXPECT_FALSE(kernels::choice().deterministic);
  EXPECT_FALSE(set_deterministic(before));
}

// Unsupported computation on a device is refused; "auto" then takes the CPU.
TEST(DeviceStep, Bf16IsRefusedWhereADeviceDoesNotComputeIt) {
  const FakeDevice fake;
  const kernels::Table& whole = kernels::table_for(parse_device("cuda:0"));
  kernels::Table wide = whole;
  wide.bf16 = false;
  kernels::register_table(parse_device("cuda:0"), &wide);
  TrainingOptions options = options_for("cuda:0");
  options.precision.type = Precision::bf16;
  Network network = small_classifier();
  const std::string message =
      testing::message_of<Unsupported>([&] { train(network, digits(), options); });
  EXPECT_NE(message.find("bf16 is not supported on this device"), std::string::npos) << message;
  kernels::register_table(parse_device("cuda:0"), &whole);
}

}  // namespace
}  // namespace lockstep
