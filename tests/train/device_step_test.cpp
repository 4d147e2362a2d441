// Trainings on a device with streams. A stand-in runs the CPU's kernels, so the bits are the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/devices.h"
#include "lockstep/engine/kernels/devices.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

TrainingData digits() {
  TrainingData data{.training = some_digits(70), .validation = some_digits(23, 100)};
  data.augmentation.reflect_x = true;
  data.augmentation.translate_x = {-2, 2};
  data.noise.salt_and_pepper = 0.05;
  return data;
}

TrainingOptions options_for(const std::string& device, int64_t streams = 2) {
  TrainingOptions options = small_options();
  options.data.last_mini_batch = "keep";  // 10 of 70: shards of 5
  options.device = device;
  options.streams = streams;
  return options;
}

struct Outcome {
  TrainingResult result;
  std::vector<std::vector<float>> values;
};

Outcome run(const TrainingOptions& options, const TrainingControl& control = {}) {
  Network network = small_classifier();
  Outcome outcome{train(network, digits(), options, control), {}};
  EXPECT_EQ(network.device(), Device{}) << "the network did not come back";
  for (const auto& l : network.parameters()) outcome.values.push_back(l.value.to_vector());
  for (const auto& s : network.state()) outcome.values.push_back(s.value.to_vector());
  return outcome;
}

// Both may be NaN.
void expect_same(double a, double b) {
  EXPECT_TRUE(a == b || (a != a && b != b)) << a << ", " << b;
}

void expect_same_training(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.result.digest, b.result.digest);
  ASSERT_EQ(a.result.iterations.size(), b.result.iterations.size());
  for (size_t i = 0; i < a.result.iterations.size(); ++i) {
    EXPECT_EQ(a.result.iterations[i].digest, b.result.iterations[i].digest) << "iteration " << i;
    EXPECT_EQ(a.result.iterations[i].loss, b.result.iterations[i].loss);
    expect_same(a.result.iterations[i].accuracy, b.result.iterations[i].accuracy);
  }
}

void expect_same(const Outcome& a, const Outcome& b) {
  expect_same_training(a, b);
  ASSERT_EQ(a.result.validations.size(), b.result.validations.size());
  for (size_t i = 0; i < a.result.validations.size(); ++i) {
    EXPECT_EQ(a.result.validations[i].loss, b.result.validations[i].loss);
    expect_same(a.result.validations[i].accuracy, b.result.validations[i].accuracy);
  }
}

// Vectors of 16 floats with targets of two floats.
TEST(DeviceStep, ComputesOnArraysWhatThreadsCompute) {
  const FakeDevice fake;
  ArrayBlock inputs{70, {16}, {}}, targets{70, {2}, {}};
  for (int64_t i = 0; i < 70 * 16; ++i) {
    inputs.values.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
    if (i % 8 == 0) targets.values.push_back(inputs.values.back());
  }
  TrainingData data;
  data.training = data.validation = array_datastore(inputs);
  data.training_targets = data.validation_targets = array_datastore(targets);
  const auto on = [&](const char* device) {
    Network network{feature_input({.features = 16, .normalization = "z-score"}),
                    fully_connected({.units = 8}), batch_normalization(), relu(),
                    fully_connected({.units = 2})};
    network.set_loss("mean_squared_error");
    network.initialize(1);
    Outcome outcome{train(network, data, options_for(device)), {}};
    for (const auto& s : network.state()) outcome.values.push_back(s.value.to_vector());
    return outcome;
  };
  expect_same(on("cuda:0"), on("cpu"));
}

TEST(DeviceStep, ComputesWhatThreadsCompute) {
  const FakeDevice fake;
  expect_same(run(options_for("cuda:0")), run(options_for("cpu")));
  EXPECT_GT(fake.replays(), 0);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// A device augments images itself if it has a kernel for that and no noise follows.
TEST(DeviceStep, ChangesImagesAsThreadsDo) {
  const FakeDevice fake;
  static kernels::Table theirs;
  static int calls;
  theirs = kernels::table_for(fake);
  const auto on = [&](const std::string& device, bool affine, bool noise = false) {
    TrainingData data = digits();
    data.noise = {};
    if (affine) data.augmentation.rotation = {-40, 40};
    if (noise) data.noise.salt_and_pepper = 0.05;
    Network network = small_classifier();
    Outcome outcome{train(network, data, options_for(device)), {}};
    for (const auto& l : network.parameters()) outcome.values.push_back(l.value.to_vector());
    return outcome;
  };
  kernels::Table counts = theirs;
  counts.augment_images = [](const kernels::AugmentImages& all, void* queue) {
    ++calls;
    theirs.augment_images(all, queue);
  };
  kernels::Table without = theirs;
  without.augment_images = nullptr;
  for (const bool affine : {false, true}) {
    const Outcome outcome = on("cpu", affine);
    kernels::register_table(fake, &counts);
    calls = 0;
    expect_same(on("cuda:0", affine), outcome);
    EXPECT_GT(calls, 0);
    kernels::register_table(fake, &without);
    expect_same(on("cuda:0", affine), outcome);
  }
  kernels::register_table(fake, &counts);
  calls = 0;
  expect_same(on("cuda:0", false, true), on("cpu", false, true));
  EXPECT_EQ(calls, 0) << "noise comes after";
  kernels::register_table(fake, &theirs);
}

// One call updates all parameters: with every solver, thresholds and frozen layers.
TEST(DeviceStep, UpdatesOfAllAreThoseOfEach) {
  const FakeDevice fake;
  const kernels::Table& whole = kernels::table_for(fake);
  kernels::Table by_one = whole;
  by_one.sgdm_of_all = nullptr;
  by_one.adam_of_all = nullptr;
  by_one.rmsprop_of_all = nullptr;
  for (const char* solver : {"sgdm", "adam", "adamw", "rmsprop"}) {
    for (const char* method : {"", "l2norm", "absolute-value"}) {
      SCOPED_TRACE(std::string(solver) + " " + method);
      const auto with = [&](const std::string& device) {
        TrainingOptions options = options_for(device);
        options.solver.type = solver;
        options.freeze = {small_classifier().layers()[1].name};
        if (*method != 0) {
          options.solver.gradient_threshold = 0.02;
          options.solver.gradient_threshold_method = method;
        }
        return options;
      };
      const Outcome outcome = run(with("cpu"));
      expect_same(run(with("cuda:0")), outcome);
      kernels::register_table(fake, &by_one);
      expect_same(run(with("cuda:0")), outcome);
      kernels::register_table(fake, &whole);
    }
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(DeviceStep, TheNumberOfStreamsDoesNotMatter) {
  const FakeDevice fake;
  const Outcome one = run(options_for("cuda:0", 1));
  for (int64_t streams : {2, 3, 4, 64}) {
    const Outcome many = run(options_for("cuda:0", streams));
    expect_same(one, many);
    int64_t busy = 0;
    for (int64_t shards : many.result.shards_by_thread) busy += shards > 0;
    EXPECT_EQ(busy, std::min<int64_t>(streams, 3)) << "a mini-batch has three shards";
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(DeviceStep, WithoutRecordingsToo) {
  const FakeDevice fake(0, {.records = false});
  expect_same(run(options_for("cuda:0")), run(options_for("cpu")));
  EXPECT_EQ(fake.replays(), 0);
}

// What cannot be recorded is computed step by step, with the same bits, and reported.
TEST(DeviceStep, RecordingsThatFailAreReported) {
  const FakeDevice fake(0, {.recordings_fail = true});
  testing::Recorder recorder;
  TrainingControl control;
  control.observers = {&recorder};
  expect_same(run(options_for("cuda:0"), control), run(options_for("cpu")));
  EXPECT_EQ(fake.replays(), 0);
  const auto told = [&] {
    return std::count_if(recorder.notices.begin(), recorder.notices.end(), [](const auto& n) {
      return n.find("the device could not record") != std::string::npos &&
             n.find("(the stand-in records nothing)") != std::string::npos;
    });
  };
  EXPECT_EQ(told(), 1);
}

TEST(DeviceStep, AdamAndTheBestNetwork) {
  const FakeDevice fake;
  const auto with = [](const std::string& device) {
    TrainingOptions options = options_for(device);
    options.solver.type = "adam";
    options.solver.initial_learning_rate = 0.1;
    options.validation.output_network = "best";
    options.validation.frequency = 1;
    return run(options);
  };
  expect_same(with("cuda:0"), with("cpu"));
}

TEST(DeviceStep, ClassWeights) {
  const FakeDevice fake;
  const auto with = [](const std::string& device, int64_t streams = 2) {
    TrainingOptions options = options_for(device, streams);
    for (int c = 0; c < 10; ++c) options.class_weights.push_back(c == 4 ? 0 : 0.3 * c);
    return run(options);
  };
  const Outcome here = with("cpu");
  for (int64_t streams : {1, 2, 3}) expect_same(with("cuda:0", streams), here);
  EXPECT_NE(here.values, run(options_for("cpu")).values);
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(DeviceStep, GradientThresholds) {
  const FakeDevice fake;
  const Outcome uncut = run(options_for("cpu"));
  for (const std::string method : {"l2norm", "global-l2norm", "absolute-value"}) {
    for (const bool freezes : {false, true}) {
      SCOPED_TRACE(method + (freezes ? ", with a frozen layer" : ""));
      const auto with = [&](const std::string& device) {
        TrainingOptions options = options_for(device);
        options.solver.gradient_threshold = 0.01;
        options.solver.gradient_threshold_method = method;
        if (freezes) options.freeze = {"convolution2d_1"};
        return run(options);
      };
      const Outcome here = with("cpu");
      expect_same(with("cuda:0"), here);
      EXPECT_NE(here.values, uncut.values);
    }
  }
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

// Class weights and a threshold together, without recordings.
TEST(DeviceStep, ClassWeightsWithAThresholdStopAndResume) {
  const FakeDevice fake(0, {.records = false});
  const auto with = [](const std::string& device) {
    TrainingOptions options = options_for(device);
    options.class_weights = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
    options.solver.gradient_threshold = 0.02;
    options.solver.gradient_threshold_method = "global-l2norm";
    return options;
  };
  const Outcome whole = run(with("cuda:0"));
  expect_same(whole, run(with("cpu")));
  const TemporaryFolder folder;
  TrainingControl control{.checkpoint_folder = folder.path, .stop_after = 2};
  run(with("cuda:0"), control);
  control.stop_after = 0;
  control.resume = true;
  const Outcome resumed = run(with("cuda:0"), control);
  ASSERT_EQ(resumed.result.iterations.front().iteration, 3) << "it has begun anew";
  EXPECT_EQ(resumed.values, whole.values);
}

TEST(DeviceStep, Bf16HasTheBitsOfTheCpu) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const FakeDevice fake;
  const auto with = [](const std::string& device, int streams) {
    TrainingOptions options = options_for(device, streams);
    options.precision.type = "bf16";
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
  for (const char* method : {"", "global-l2norm", "absolute-value"}) {
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(method);
      TrainingOptions options = options_for("cpu");
      if (*method != 0) {
        options.solver.gradient_threshold = 0.02;
        options.solver.gradient_threshold_method = method;
      }
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
    options.precision.type = "fp16";
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
  options.precision.type = "tf32";
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
  options.precision.type = "bf16";
  Network network = small_classifier();
  const std::string message =
      testing::message_of<Unsupported>([&] { train(network, digits(), options); });
  EXPECT_NE(message.find("bf16 is not supported on this device"), std::string::npos) << message;
  kernels::register_table(parse_device("cuda:0"), &whole);
}

TEST(DeviceStep, StopsAndResumesAnywhere) {
  const FakeDevice fake;
  const Outcome whole = run(options_for("cuda:0"));
  for (int64_t stop = 1; stop < whole.result.last_iteration; ++stop) {
    const TemporaryFolder folder;
    TrainingControl control{.checkpoint_folder = folder.path, .stop_after = stop};
    run(options_for("cuda:0", 1), control);
    control.stop_after = 0;
    control.resume = true;
    const Outcome resumed = run(options_for("cuda:0", 3), control);
    ASSERT_EQ(resumed.result.iterations.front().iteration, stop + 1) << "it has begun anew";
    EXPECT_EQ(resumed.values, whole.values) << "stopped after iteration " << stop;
    EXPECT_EQ(resumed.result.iterations.back().chain, whole.result.iterations.back().chain);
  }
}

TEST(DeviceStep, ADeviceIsPartOfWhatIsResumed) {
  const FakeDevice fake;
  const TemporaryFolder folder;
  TrainingControl control{.checkpoint_folder = folder.path, .stop_after = 2};
  run(options_for("cuda:0"), control);
  control.stop_after = 0;
  control.resume = true;
  TrainingOptions other = options_for("cpu");
  other.shards.size = 0;  // the default depends on the device
  const std::string message = testing::message_of<InvalidArgument>([&] { run(other, control); });
  EXPECT_NE(message.find("training.device: \"cpu\" here, \"cuda\" there"), std::string::npos)
      << message;
}

TEST(DeviceStep, ImagesToImages) {
  const FakeDevice fake;
  const auto with = [](const std::string& device) {
    Network network{
        image_input(
            {.height = 28, .width = 28, .channels = 1, .normalization = "rescale-zero-one"}),
        convolution2d({.filters = 5, .kernel = {3, 3}, .stride = {2, 2}, .padding = same_padding}),
        relu(),
        transposed_convolution2d(
            {.filters = 1, .kernel = {4, 4}, .stride = {2, 2}, .padding = same_padding}),
        clipped_relu({.ceiling = 1})};
    network.set_loss("mean_squared_error");
    network.initialize(2);
    TrainingData data = digits();
    data.training_targets = data.training;
    data.validation_targets = data.validation;
    return Outcome{train(network, data, options_for(device)), {}};
  };
  expect_same(with("cuda:0"), with("cpu"));
}

TEST(DeviceStep, NothingStaysOnTheDevice) {
  const FakeDevice fake;
  run(options_for("cuda:0"));
  release_cached_memory(fake);
  EXPECT_EQ(fake.used(), 0u);
}

// 15 of 35 observations remain: shards of 10 and 10, then one of 15.
TEST(DeviceStep, ASmallerMiniBatchMayHaveLargerShards) {
  const FakeDevice fake;
  const auto with = [](const std::string& device) {
    TrainingOptions options = options_for(device);
    options.shards.size = 16;
    Network network = small_classifier();
    TrainingData data{.training = some_digits(35)};
    return Outcome{train(network, data, options), {}};
  };
  expect_same(with("cuda:0"), with("cpu"));
}

TEST(DeviceStep, ALossThatIsNoNumberEndsWithTheLastValues) {
  const auto with = [](const std::string& device, std::vector<std::vector<float>>& values) {
    Network network = small_classifier();
    TrainingOptions options = options_for(device);
    options.solver.initial_learning_rate = 1e30;
    const std::string message =
        testing::message_of<Error>([&] { train(network, digits(), options); });
    EXPECT_EQ(network.device(), Device{});
    for (const auto& l : network.parameters()) values.push_back(l.value.to_vector());
    for (const auto& s : network.state()) values.push_back(s.value.to_vector());
    return message;
  };
  const FakeDevice fake;
  std::vector<std::vector<float>> here, there;
  const std::string message = with("cpu", here);
  EXPECT_NE(message.find("is not a finite number"), std::string::npos) << message;
  EXPECT_EQ(with("cuda:0", there), message);
  EXPECT_EQ(here.size(), there.size());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(0, std::memcmp(here[i].data(), there[i].data(), here[i].size() * sizeof(float)));
  }
}

TEST(Device, OneThatIsNotThereIsRefusedBeforeAnythingRuns) {
  Network network = small_classifier();
  EXPECT_THROW(train(network, digits(), options_for("cuda:7")), Unsupported);
}

}  // namespace
}  // namespace lockstep
