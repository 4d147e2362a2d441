// Results of frozen layers that validations keep change no bit of what they find.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/train/evaluation/kept_batches.h"
#include "tests/train/kept_runs.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;

constexpr const char* kValidationsKeep = "validations keep the results of frozen layers: ";
constexpr const char* kValidationsCompute =
    "validations compute the results of frozen layers each time, because ";

int64_t times_told(const KeptRun& run, const std::string& text) {
  return std::ranges::count_if(
      run.notices, [&](const std::string& told) { return told.find(text) != told.npos; });
}

// Of a training with and without kept results. Returns the former.
KeptRun expect_same_validations(const TrainingOptions& options,
                                const TrainingData& data = kept_digits(),
                                const std::function<Network()>& make = half_frozen) {
  const KeptRun never = kept_run(KeepFeatures::never, options, data, make);
  EXPECT_GT(never.result.validations.size(), 1u);
  EXPECT_FALSE(never.says("frozen layers"));
  KeptRun kept = kept_run(KeepFeatures::automatic, options, data, make);
  expect_same_runs(never, kept);
  for (size_t i = 0; i < never.result.validations.size(); ++i) {
    const ValidationRecord &one = never.result.validations[i], &other = kept.result.validations[i];
    EXPECT_EQ(one.observations, other.observations);
    EXPECT_EQ(one.metrics, other.metrics);
    EXPECT_TRUE(one.accuracy == other.accuracy || one.accuracy != one.accuracy);
  }
  return kept;
}

TEST(KeptValidations, AreTheSame) {
  for (const int64_t threads : {1, 2, 5}) {
    TrainingOptions options = half_frozen_options(threads);
    options.validation.metrics = {"f1", "top-5"};
    const KeptRun kept = expect_same_validations(options);
    EXPECT_TRUE(kept.says("70 of 70 observations"));
    EXPECT_EQ(times_told(kept, kValidationsKeep), 1);
  }
}

TEST(KeptValidations, OfAveragesAndTheBestNetwork) {
  TrainingOptions options = half_frozen_options();
  options.average_decay = 0.9;
  options.validation.output_network = OutputNetwork::best;
  EXPECT_TRUE(expect_same_validations(options).says(kValidationsKeep));
}

// What is read without having been computed, or loaded, would be poison.
TEST(KeptValidations, AreAllThatTheRestReads) {
  TrainingOptions options = half_frozen_options(1);
  options.max_epochs = 2;
  const KeptRun never = kept_run(KeepFeatures::never, options);
  for (const Poison pattern : {Poison::not_a_number, Poison::huge}) {
    const Poisoned poisoned(pattern);
    const KeptRun kept = kept_run(KeepFeatures::automatic, options);
    EXPECT_TRUE(kept.says(kValidationsKeep));
    expect_same_runs(never, kept);
  }
}

TEST(KeptValidations, WhereTheTrainingDataChanges) {
  TrainingData data = kept_digits();
  data.augmentation.reflect_x = true;
  KeptRun kept = expect_same_validations(half_frozen_options(), data);
  EXPECT_TRUE(kept.says("computed in each iteration, because the training data is augmented"));
  EXPECT_TRUE(kept.says(kValidationsKeep));
  data = kept_digits();
  data.noise.salt_and_pepper = 0.1;  // drawn once for validation data
  EXPECT_TRUE(expect_same_validations(half_frozen_options(), data).says(kValidationsKeep));
}

TEST(KeptValidations, WhereFrequenciesCountEpochs) {
  TrainingOptions options = half_frozen_options();
  options.validation.frequency_unit = FrequencyUnit::epoch;
  for (const int64_t frequency : {0, 1, 2}) {  // 0: each epoch
    options.validation.frequency = frequency;
    EXPECT_TRUE(expect_same_validations(options).says(kValidationsKeep)) << frequency;
  }
}

// Results of layers that begin to learn are forgotten.
TEST(KeptValidations, OfLayersThatLearnLater) {
  TrainingOptions options = half_frozen_options();
  options.max_epochs = 5;
  options.unfreeze = {"second:3", "norm:5", "first:5"};
  for (const int64_t frequency : {1, 2, 3}) {
    options.validation.frequency = frequency;
    const KeptRun kept = expect_same_validations(options);
    EXPECT_EQ(times_told(kept, kValidationsKeep), 2);
  }
}

TEST(KeptValidations, OnlyAFewAndOnlyMany) {
  for (const int64_t count : {1, 63, 64, 65, 128, 200}) {
    TrainingData data{.training = some_digits(100), .validation = some_digits(count, 300)};
    const std::string all = std::to_string(count);
    EXPECT_TRUE(expect_same_validations(half_frozen_options(), data)
                    .says(all + " of " + all + " observations"));
  }
}

TEST(KeptValidations, UseWhatTheTrainingLeaves) {
  TrainingOptions options = half_frozen_options();
  options.data.cache_mib = 1;
  KeptRun kept = expect_same_validations(options);
  EXPECT_TRUE(kept.says(std::string(kValidationsCompute) +
                        "images and results of the training leave no room in cache_mib = 1"));
  options.data.cache_mib = 0;
  kept = expect_same_validations(options);
  EXPECT_TRUE(
      kept.says(std::string(kValidationsCompute) + "images leave no room in cache_mib = 0"));
  // The training keeps nothing of augmented images; there is room for one of two batches.
  TrainingData data = kept_digits();
  data.validation = some_digits(128, 300);
  data.augmentation.reflect_x = true;
  options.data.cache_mib = 1;
  kept = expect_same_validations(options, data);
  EXPECT_TRUE(kept.says(kValidationsKeep));
  EXPECT_FALSE(kept.says("128 of 128 observations"));
}

TEST(KeptValidations, NothingForOneValidationOrLiveLayers) {
  TrainingOptions options = half_frozen_options();
  options.validation.frequency = 9;
  options.max_iterations = 9;
  EXPECT_FALSE(kept_run(KeepFeatures::automatic, options).says("validations"));
  options = half_frozen_options();
  options.freeze = {"norm"};  // not "first"
  EXPECT_FALSE(kept_run(KeepFeatures::automatic, options).says("validations"));
}

// Statistics that training follows are not those of the last validation.
TEST(KeptValidations, AfterLiveStatistics) {
  const auto make = [] {
    Network n({image_input({.height = 28, .width = 28, .channels = 1}),
               convolution2d({.filters = 5, .kernel = {3, 3}, .stride = {2, 2}}),
               batch_normalization(), relu(), convolution2d({.filters = 4, .kernel = {3, 3}}),
               fully_connected({.units = 10}), softmax()});
    n.initialize(1);
    return n;
  };
  TrainingOptions options = half_frozen_options();
  options.freeze = {"convolution2d_1", "batch_normalization_1", "convolution2d_2"};
  // The first convolution alone comes before them.
  EXPECT_TRUE(expect_same_validations(options, kept_digits(), make).says(kValidationsKeep));
}

TEST(KeptValidations, AgainstImages) {
  const auto make = [] {
    Network n;
    n.add(image_input({.height = 28, .width = 28, .channels = 1}), "input");
    n.add(convolution2d({.filters = 5, .kernel = {3, 3}, .padding = same_padding}), "first");
    n.add(relu());
    n.add(convolution2d({.filters = 1, .kernel = {3, 3}, .padding = same_padding}), "last");
    n.set_loss("mean_squared_error");
    n.initialize(2);
    return n;
  };
  TrainingOptions options = half_frozen_options();
  options.freeze = {"first"};
  options.solver.initial_learning_rate = 1e-6;
  options.validation.metrics = {"rmse"};
  TrainingData data = kept_digits();
  data.training_targets = data.training;
  data.validation_targets = data.validation;
  EXPECT_TRUE(expect_same_validations(options, data, make).says(kValidationsKeep));
  data.training_targets = some_digits(100, 200);
  data.validation_targets = some_digits(70, 500);
  EXPECT_TRUE(expect_same_validations(options, data, make).says(kValidationsKeep));
}

// Its result of a row depends on the other rows, in training and in validations.
struct FromMeanOfRows {
  static constexpr const char* kType = "from_mean_of_rows";
  static constexpr const char* kHelp = "the difference from the mean of all observations";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder&, Value x) const { return x - ops::mean(x, {0}, true); }
};

TEST(KeptValidations, OfLayersThatComputeWithSeveralObservations) {
  for (const bool first : {true, false}) {
    const auto make = [first] {
      Network n;
      n.add(image_input({.height = 28, .width = 28, .channels = 1}), "input");
      n.add(convolution2d({.filters = 5, .kernel = {3, 3}, .stride = {2, 2}}), "below");
      if (first) n.add(custom_layer(FromMeanOfRows{}));
      n.add(convolution2d({.filters = 4, .kernel = {3, 3}}), "second");
      n.add(relu());
      if (!first) n.add(custom_layer(FromMeanOfRows{}));
      n.add(fully_connected({.units = 10}), "head");
      n.add(softmax());
      n.initialize(1);
      return n;
    };
    TrainingOptions options = half_frozen_options();
    options.freeze = {"below", "second"};
    EXPECT_TRUE(expect_same_validations(options, kept_digits(), make).says(kValidationsKeep));
  }
}

}  // namespace
}  // namespace lockstep
