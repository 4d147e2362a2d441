// Results of frozen layers that are kept change no bit of a training.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using testing::Recorder;
using testing::some_digits;

// "first" to "joined" do not change if the first two layers with parameters are frozen. The results
// of "joined" and of "first" are read by layers that learn.
Network frozen_below(int64_t outputs = 10) {
  Network n;
  n.add(image_input({.height = 28, .width = 28, .channels = 1}), "input");
  n.add(convolution2d({.filters = 6, .kernel = {3, 3}, .stride = {2, 2}, .padding = same_padding}),
        "first");
  n.add(batch_normalization({.statistics = "moving"}), "norm");
  n.add(relu(), "relu");
  n.add(convolution2d({.filters = 6, .kernel = {3, 3}, .padding = same_padding}), "second");
  n.add(addition(), "joined", {"second", "relu"});
  n.add(dropout({.probability = 0.2}), "dropout");
  n.add(convolution2d({.filters = 8, .kernel = {3, 3}, .padding = same_padding}), "third");
  n.add(batch_normalization(), "live");
  n.add(convolution2d({.filters = 8, .kernel = {1, 1}}), "side", {"first"});
  n.add(addition(), "sum", {"live", "side"});
  n.add(fully_connected({.units = outputs}), "head");
  if (outputs == 10) n.add(softmax(), "softmax");
  if (outputs != 10) n.set_loss("mean_squared_error");
  n.initialize(3);
  return n;
}

TrainingOptions frozen_options(int64_t threads = 2) {
  TrainingOptions options;
  options.mini_batch_size = 32;
  options.shards.size = 16;
  options.max_epochs = 3;
  options.threads = threads;
  options.solver.initial_learning_rate = 0.02;
  options.solver.gradient_threshold = 1;
  options.validation.frequency = 3;
  options.validation.metrics = {"top-5"};
  options.freeze = {"first", "norm", "second"};
  return options;
}

TrainingData digits() { return {.training = some_digits(100), .validation = some_digits(70, 300)}; }

struct Trained {
  TrainingResult result;
  std::vector<std::string> notices;
};

Trained trained(
    KeepFeatures keep, const TrainingData& data, TrainingOptions options,
    const std::function<Network()>& make = [] { return frozen_below(); },
    TrainingControl control = {}) {
  Network network = make();
  Recorder recorder;
  options.data.keep_features = keep;
  control.observers = {&recorder};
  TrainingResult result = train(network, data, options, control);
  return {std::move(result), recorder.notices};
}

bool kept(const Trained& t) {
  for (const std::string& notice : t.notices) {
    if (notice.find("are computed once and kept") != notice.npos) return true;
  }
  return false;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.result.digest, b.result.digest);
  EXPECT_EQ(a.result.network_digest, b.result.network_digest);
  ASSERT_EQ(a.result.validations.size(), b.result.validations.size());
  for (size_t i = 0; i < a.result.validations.size(); ++i) {
    EXPECT_EQ(a.result.validations[i].loss, b.result.validations[i].loss);
    EXPECT_EQ(a.result.validations[i].metrics.at(0).value,
              b.result.validations[i].metrics.at(0).value);
  }
}

TEST(KeptFeatures, ChangeNoBit) {
  const Trained never = trained(KeepFeatures::never, digits(), frozen_options());
  EXPECT_FALSE(kept(never));
  for (const int64_t threads : {1, 2, 5}) {
    const Trained always = trained(KeepFeatures::always, digits(), frozen_options(threads));
    EXPECT_TRUE(kept(always));
    expect_same(never, always);
  }
  const Trained automatic = trained(KeepFeatures::automatic, digits(), frozen_options());
  EXPECT_TRUE(kept(automatic));
  expect_same(never, automatic);
}

TEST(KeptFeatures, ChangeNoBitForShardsOfAnySize) {
  for (const int64_t shard : {1, 5, 7, 8, 33}) {
    TrainingOptions options = frozen_options();
    options.shards.size = shard;
    options.mini_batch_size = shard * (shard < 10 ? 4 : 1);
    options.freeze = {"first", "norm", "second", "third"};
    if (shard == 1) options.max_iterations = 40;
    const auto make = [shard] {
      Network n = frozen_below();
      if (shard > 1) return n;
      Network one;  // a shard of one observation has no statistics
      one.add(image_input({.height = 28, .width = 28, .channels = 1}), "input");
      for (const char* name : {"first", "norm", "second", "third"}) {
        one.add(convolution2d({.filters = 4, .kernel = {3, 3}}), name);
      }
      one.add(fully_connected({.units = 10}), "head");
      one.add(softmax(), "softmax");
      one.initialize(3);
      return one;
    };
    const Trained always = trained(KeepFeatures::always, digits(), options, make);
    EXPECT_TRUE(kept(always));
    expect_same(trained(KeepFeatures::never, digits(), options, make), always);
  }
}

TEST(KeptFeatures, LearnOtherTargets) {
  std::vector<float> values;
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < 4; ++k) values.push_back(static_cast<float>((i * (k + 3)) % 11) / 11);
  }
  const DatastorePtr targets =
      array_datastore(ArrayBlock{.count = 100, .shape = Shape{4}, .values = values});
  const auto make = [] { return frozen_below(4); };
  TrainingOptions options = frozen_options();
  options.validation.metrics = {"mae"};
  const DatastorePtr inputs = some_digits(100);
  const DatastorePtr with = with_targets(inputs, targets);
  for (const TrainingData& data :
       {TrainingData{.training = with, .validation = with}, TrainingData{.training = inputs,
                                                            .validation = inputs,
                                                            .training_targets = targets,
                                                            .validation_targets = targets}}) {
    const Trained always = trained(KeepFeatures::always, data, options, make);
    EXPECT_TRUE(kept(always));
    expect_same(trained(KeepFeatures::never, data, options, make), always);
  }
}

TEST(KeptFeatures, MayBeginOrEndWithAResume) {
  const std::string folder = ::testing::TempDir() + "kept_features";
  const Trained whole = trained(KeepFeatures::never, digits(), frozen_options());
  for (const auto& [first, then] : {std::pair{KeepFeatures::always, KeepFeatures::never},
                                    std::pair{KeepFeatures::never, KeepFeatures::always},
                                    std::pair{KeepFeatures::always, KeepFeatures::always}}) {
    std::filesystem::remove_all(folder);
    const auto make = [] { return frozen_below(); };
    const Trained begun = trained(first, digits(), frozen_options(), make,
                                  {.checkpoint_folder = folder, .stop_after = 4});
    EXPECT_TRUE(begun.result.stopped);
    const Trained ended = trained(then, digits(), frozen_options(1), make,
                                  {.checkpoint_folder = folder, .resume = true});
    EXPECT_EQ(kept(ended), then == KeepFeatures::always);
    EXPECT_EQ(ended.result.digest, whole.result.digest);
    EXPECT_EQ(ended.result.network_digest, whole.result.network_digest);
  }
  std::filesystem::remove_all(folder);
}

// What "auto" reports, which is what "always" refuses.
std::string reason(
    const TrainingData& data, const TrainingOptions& options,
    const std::function<Network()>& make = [] { return frozen_below(); }) {
  const std::string refused = message_of<InvalidArgument>(
      [&] { (void)trained(KeepFeatures::always, data, options, make); });
  EXPECT_NE(refused.find("[training] keep_features = always: "), refused.npos) << refused;
  const Trained automatic = trained(KeepFeatures::automatic, data, options, make);
  EXPECT_FALSE(kept(automatic));
  const size_t because = refused.find("because ");
  if (!automatic.notices.empty()) {
    const std::string& told = automatic.notices.front();
    EXPECT_EQ(refused.find(told.substr(told.find("because "))), because) << told;
  }
  return refused;
}

TEST(KeptFeatures, SayWhatPreventsThem) {
  const auto expect = [&](const std::string& refused, const std::string& part) {
    EXPECT_NE(refused.find(part), refused.npos) << refused;
  };
  TrainingOptions options = frozen_options();
  options.max_iterations = 1;
  options.freeze = {"norm"};
  expect(reason(digits(), options), "`first` is not frozen");
  options.freeze = {"first", "live"};
  options.data.cache_mib = 0;
  options.max_iterations = 0;
  expect(
      message_of<InvalidArgument>([&] { (void)trained(KeepFeatures::always, digits(), options); }),
      "raise cache_mib");
  EXPECT_FALSE(kept(trained(KeepFeatures::automatic, digits(), options)));
  options = frozen_options();
  options.max_iterations = 1;
  TrainingData augmented = digits();
  augmented.augmentation.reflect_x = true;
  expect(reason(augmented, options), "the training data is augmented");
  TrainingData noisy = digits();
  noisy.noise.salt_and_pepper = 0.1;
  expect(reason(noisy, options), "noise is added");
  options.shards.size = 10;
  options.mini_batch_size = 25;
  expect(reason(digits(), options), "the shards have different sizes");
  options = frozen_options();
  options.max_iterations = 1;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.mini_batch_size = 16;
  expect(reason(digits(), options), "the shards have different sizes");
  options = frozen_options();
  options.max_iterations = 1;
  const auto live = [] {
    Network n({image_input({.height = 28, .width = 28, .channels = 1}), batch_normalization(),
               fully_connected({.units = 10}), softmax()});
    n.initialize(1);
    return n;
  };
  options.freeze = {"batch_normalization_1"};
  expect(reason(digits(), options, live), "statistics that follow the mini-batches");
  options.freeze = {"*"};
  expect(reason(digits(), options), "no layer learns");
}

// Without these layers nothing can be given: what they do not know is refused.
TEST(KeptFeatures, NeedAllThatTheOutputsDependOn) {
  const Network n = frozen_below();
  const LoweredNetwork lowered = n.lower(2, {.training = true, .given = {"joined", "first"}});
  EXPECT_EQ(lowered.inputs.size(), 2u);
  EXPECT_EQ(lowered.graph.shape(lowered.inputs[0]), (Shape{2, 6, 14, 14}));
  EXPECT_EQ(lowered.described[1].name, "first");
  const std::string refused =
      message_of<InvalidArgument>([&] { (void)n.lower(2, {.given = {"joined"}}); });
  EXPECT_NE(refused.find("depend on the input `input`"), refused.npos) << refused;
  EXPECT_NE(
      message_of<InvalidArgument>([&] { (void)n.lower(2, {.given = {"joind"}}); }).find("joined"),
      std::string::npos);
}

}  // namespace
}  // namespace lockstep
