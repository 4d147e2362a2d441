// Trainings on a device with streams. A stand-in runs the CPU's kernels, so the bits are the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/loading.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/device_runs.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;
using testing::digits;
using testing::expect_same;
using testing::options_for;
using testing::Outcome;
using testing::run;
using testing::small_classifier;
using testing::some_digits;
using testing::TemporaryFolder;

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
  const FakeDevice fake(0, {.large_pages = true});
  const kernels::Table& whole = kernels::table_for(fake);
  kernels::Table by_one = whole;
  by_one.sgdm_of_all = nullptr;
  by_one.adam_of_all = nullptr;
  by_one.rmsprop_of_all = nullptr;
  for (const char* solver : {"sgdm", "adam", "adamw", "rmsprop"}) {
    for (const auto& limit : {std::pair{GradientThresholdMethod::l2norm, 0.0},
                              std::pair{GradientThresholdMethod::l2norm, 0.02},
                              std::pair{GradientThresholdMethod::absolute_value, 0.02}}) {
      const auto method = limit.first;
      const double threshold = limit.second;
      SCOPED_TRACE(std::string(solver) + " " + std::to_string(static_cast<int>(method)));
      const auto with = [&](const std::string& device) {
        TrainingOptions options = options_for(device);
        options.solver.type = solver;
        options.freeze = {small_classifier().layers()[1].name};
        options.solver.gradient_threshold = threshold;
        options.solver.gradient_threshold_method = method;
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

// Layers that begin to learn with an epoch, where the device records iterations or not, and updates
// all parameters at once or one by one.
TEST(DeviceStep, LayersLearnFromAnEpochOn) {
  for (const bool records : {true, false}) {
    const FakeDevice fake(0, {.large_pages = true, .records = records});
    const kernels::Table& whole = kernels::table_for(fake);
    kernels::Table by_one = whole;
    by_one.sgdm_of_all = nullptr;
    by_one.adam_of_all = nullptr;
    for (const char* solver : {"sgdm", "adam"}) {
      for (const double threshold : {0.0, 0.02}) {
        const auto with = [&](const std::string& device, int64_t streams = 2) {
          TrainingOptions options = options_for(device, streams);
          options.solver.type = solver;
          options.max_epochs = 4;
          options.freeze = {"convolution2d_1", "batch_normalization_1"};
          options.unfreeze = {"batch_norm*:2", "convolution2d_1:4"};
          options.solver.gradient_threshold = threshold;
          return options;
        };
        const Outcome here = run(with("cpu"));
        const Outcome there = run(with("cuda:0"));
        expect_same(there, here);
        expect_same(run(with("cuda:0", 1)), here);
        kernels::register_table(fake, &by_one);
        expect_same(run(with("cuda:0")), here);
        kernels::register_table(fake, &whole);
        TrainingOptions frozen = with("cpu");
        frozen.unfreeze = {};
        EXPECT_NE(run(frozen).values, here.values);
        // Before, in and after the epochs in which layers begin to learn.
        const int64_t each = here.result.last_iteration / 4;
        for (const int64_t stop : {each - 1, each, each + 1, 3 * each}) {
          const TemporaryFolder folder;
          TrainingControl control{.checkpoint_folder = folder.path, .stop_after = stop};
          run(with("cuda:0"), control);
          control.stop_after = 0;
          control.resume = true;
          const Outcome resumed = run(with("cuda:0", 1), control);
          EXPECT_EQ(resumed.result.iterations.front().iteration, stop + 1);
          EXPECT_EQ(resumed.values, here.values) << "stopped after iteration " << stop;
        }
      }
    }
    EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
  }
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
    options.validation.output_network = OutputNetwork::best;
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
  for (const GradientThresholdMethod method :
       {GradientThresholdMethod::l2norm, GradientThresholdMethod::global_l2norm,
        GradientThresholdMethod::absolute_value}) {
    for (const bool freezes : {false, true}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(method)) +
                   (freezes ? ", with a frozen layer" : ""));
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
    options.solver.gradient_threshold_method = GradientThresholdMethod::global_l2norm;
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

TEST(DeviceStep, ALossThatIsNotANumberEndsWithTheLastValues) {
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
