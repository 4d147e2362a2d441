// Trainings with an augmentation of the user.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/same_history.h"
#include "tests/train/support.h"

namespace lockstep::own_augmentation {
namespace {

using testing::expect_same_history;
using testing::expect_says;
using testing::law_options;
using testing::message_of;

// A random row becomes gray, with noise of each pixel.
void gray_row(AugmentedExample& e) {
  Image& image = e.images.at(0);
  const uint64_t row = e.random.below(0, static_cast<uint64_t>(image.height));
  for (uint64_t x = 0; x < static_cast<uint64_t>(image.width); ++x) {
    image.pixels[row * static_cast<uint64_t>(image.width) + x] =
        static_cast<uint8_t>(e.random.between(1 + x, 100, 150));
  }
}

void fail_late(AugmentedExample& e) {
  if (e.epoch == 1 && e.observation == 37) throw std::runtime_error("no such texture");
}

TrainingProblem problem(bool fails) {
  TrainingProblem all = testing::law_problem();
  all.data.own_augmentation =
      fails ? OwnAugmentation{fail_late, "late"} : OwnAugmentation{gray_row, "gray row"};
  return all;
}

TrainingResult run(const TrainingOptions& options, const TrainingControl& control = {}) {
  const auto call = make_call<&problem>(false);
  TrainingProblem here = call();
  return train(call, here.network, here.data, options, control);
}

TEST(OwnAugmentationLaw, OneDigestForThreadsAndWorkers) {
  const TrainingResult one = run(law_options(1));
  TrainingProblem plain = testing::law_problem();
  EXPECT_NE(train(plain.network, plain.data, law_options(1)).digest, one.digest);
  for (const int64_t threads : {2, 5}) expect_same_history(one, run(law_options(threads)));
  for (const auto& load : {std::vector<double>{1, 1}, {3, 1}}) {
    TrainingOptions options = law_options(2);
    options.workers.count = 2;
    options.workers.load = load;
    expect_same_history(one, run(options));
  }
  TrainingOptions uncached = law_options(2);
  uncached.data.cache_mib = 0;
  uncached.data.loader_threads = 3;
  EXPECT_EQ(run(uncached).digest, one.digest);
}

// A device augments images itself where it can; here it gets them as the function left them.
TEST(OwnAugmentationLaw, ADeviceSeesTheSameImages) {
  const devicetest::FakeDevice fake;
  TrainingOptions options = law_options(1);
  options.device = "cuda:0";
  TrainingProblem there = problem(false), plain = testing::law_problem();
  const TrainingResult result = train(there.network, there.data, options);
  EXPECT_EQ(result.digest, run(law_options(1)).digest);
  EXPECT_NE(train(plain.network, plain.data, options).digest, result.digest);
}

TEST(OwnAugmentationLaw, AResumeChangesNoBitAndNeedsTheName) {
  const TrainingResult one = run(law_options(1));
  const testing::TemporaryFolder folder;
  const TrainingControl first{.checkpoint_folder = folder.path, .stop_after = 6};
  EXPECT_TRUE(run(law_options(2), first).stopped);
  const TrainingControl rest{.checkpoint_folder = folder.path, .resume = true};
  TrainingProblem other = problem(false);
  other.data.own_augmentation.name = "another";
  expect_says(
      message_of<InvalidArgument>([&] { train(other.network, other.data, law_options(1), rest); }),
      "augmentation.function");
  other.data.own_augmentation = {};
  EXPECT_THROW(train(other.network, other.data, law_options(1), rest), InvalidArgument);
  const TrainingResult resumed = run(law_options(5), rest);
  EXPECT_EQ(resumed.digest, one.digest);
  EXPECT_EQ(resumed.iterations.back().chain, one.iterations.back().chain);
}

TEST(OwnAugmentationLaw, AnErrorNamesTheObservation) {
  const auto call = make_call<&problem>(true);
  const std::string name = testing::law_data().training->name(37);
  for (const int64_t workers : {0, 2}) {
    TrainingOptions options = law_options(2);
    options.workers.count = workers;
    TrainingProblem here = call();
    expect_says(message_of<Error>([&] { train(call, here.network, here.data, options); }),
                "[augmentation] the function `late` for " + name +
                    " (observation 37, epoch 2) failed: no such texture");
  }
}

TEST(OwnAugmentationLaw, NeedsANameAndImages) {
  TrainingProblem unnamed = problem(false);
  unnamed.data.own_augmentation.name = "";
  expect_says(
      message_of<InvalidArgument>([&] { train(unnamed.network, unnamed.data, law_options(1)); }),
      "has no name");
  const ArrayBlock numbers{.count = 4, .shape = {2}, .values = {1, 2, 3, 4, 5, 6, 7, 8}};
  TrainingData data{.training = array_datastore(numbers)};
  data.training_targets = data.training;
  data.own_augmentation = {gray_row, "gray row"};
  Network network{feature_input({.features = 2}), fully_connected({.units = 2})};
  network.set_loss("mean_squared_error");
  network.initialize(1);
  expect_says(message_of<Unsupported>([&] { train(network, data, testing::small_options()); }),
              "the function `gray row` is for images");
}

}  // namespace
}  // namespace lockstep::own_augmentation
