// Results of frozen layers that are kept change no bit of a training, and layers that begin to
// learn do so as if they had been frozen until then.
#include "lockstep/train/programs/frozen/kept_results.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/programs/shard_plans.h"
#include "tests/train/kept_runs.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;

TEST(KeptResultsOfLayers, ChangeNoBit) {
  const KeptRun never = kept_run(KeepFeatures::never, half_frozen_options());
  EXPECT_FALSE(never.says("frozen layers"));
  for (const int64_t threads : {1, 2, 5}) {
    const KeptRun kept = kept_run(KeepFeatures::automatic, half_frozen_options(threads));
    // 6 + 6 channels of 14 x 14
    EXPECT_TRUE(kept.says(std::string(kResultsAreKept) + ": 0.9 MiB for 100 of 100"))
        << kept.notices.size();
    expect_same_runs(never, kept);
  }
}

// What is read without having been computed, or loaded, would be poison.
TEST(KeptResultsOfLayers, AreAllThatTheRestReads) {
  TrainingOptions options = half_frozen_options(1);
  options.max_epochs = 2;
  const KeptRun never = kept_run(KeepFeatures::never, options);
  for (const Poison pattern : {Poison::not_a_number, Poison::huge}) {
    const Poisoned poisoned(pattern);
    expect_same_runs(never, kept_run(KeepFeatures::automatic, options));
  }
}

TEST(KeptResultsOfLayers, ChangeNoBitForShardsOfAnySize) {
  for (const int64_t shard : {1, 5, 7, 8, 24, 33}) {
    TrainingOptions options = half_frozen_options();
    options.shards.size = shard;
    options.mini_batch_size = shard * (shard < 10 ? 4 : 1);
    options.data.last_mini_batch = LastMiniBatch::keep;
    options.freeze = {"first", "norm", "second"};
    if (shard == 1) options.max_iterations = 60;
    const auto make = [shard] {
      if (shard > 1) return half_frozen();
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
    // A last shard of one observation would not have statistics.
    const TrainingData data{.training = some_digits(shard == 33 ? 101 : 103)};
    const KeptRun kept = kept_run(KeepFeatures::automatic, options, data, make);
    EXPECT_TRUE(kept.says(kResultsAreKept)) << shard;
    expect_same_runs(kept_run(KeepFeatures::never, options, data, make), kept);
  }
}

TEST(KeptResultsOfLayers, OfDenseLayersAndOfAllLayersButTheLast) {
  const auto make = [] {
    Network n{image_input({.height = 28, .width = 28, .channels = 1}),
              fully_connected({.units = 20}),
              relu(),
              fully_connected({.units = 30}),
              layer_normalization(),
              relu(),
              fully_connected({.units = 10}),
              softmax()};
    n.initialize(2);
    return n;
  };
  for (const std::string last : {"fully_connected_1", "layer_normalization_1"}) {
    for (const char* solver : {"sgdm", "adam"}) {
      TrainingOptions options = half_frozen_options();
      options.solver.type = solver;
      options.freeze = {"fully_connected_1"};
      if (last[0] == 'l') options.freeze = {"fully_connected_1", "fully_connected_2", last};
      const KeptRun kept = kept_run(KeepFeatures::automatic, options, kept_digits(), make);
      EXPECT_TRUE(kept.says(kResultsAreKept));
      expect_same_runs(kept_run(KeepFeatures::never, options, kept_digits(), make), kept);
    }
  }
}

TEST(KeptResultsOfLayers, AreComputedWhereTheMemoryEnds) {
  const KeptRun never = kept_run(KeepFeatures::never, half_frozen_options());
  TrainingOptions options = half_frozen_options();
  options.data.cache_mib = 1;  // the images take some of it
  const KeptRun some = kept_run(KeepFeatures::automatic, options);
  EXPECT_TRUE(some.says(kResultsAreKept)) << some.notices.size();
  EXPECT_FALSE(some.says("100 of 100"));
  expect_same_runs(never, some);
  options.data.cache_mib = 0;
  const KeptRun none = kept_run(KeepFeatures::automatic, options);
  EXPECT_TRUE(
      none.says(std::string(kResultsAreComputed) + "the images leave no room in cache_mib = 0"));
  expect_same_runs(never, none);
}

TEST(KeptResultsOfLayers, MayBeginOrEndWithAResume) {
  const std::string folder = ::testing::TempDir() + "kept_results";
  TrainingOptions options = half_frozen_options();
  options.unfreeze = {"second:3"};
  const KeptRun whole = kept_run(KeepFeatures::never, options);
  using enum KeepFeatures;
  for (const auto& [first, then] : {std::pair{automatic, never}, std::pair{never, automatic},
                                    std::pair{automatic, automatic}}) {
    for (const int64_t stop : {4, 6, 7}) {  // 6: before the epoch in which "second" learns
      std::filesystem::remove_all(folder);
      TrainingControl control{.checkpoint_folder = folder, .stop_after = stop};
      const KeptRun begun = kept_run(first, options, kept_digits(), half_frozen, control);
      EXPECT_TRUE(begun.result.stopped);
      options.threads = 1;
      const KeptRun ended = kept_run(then, options, kept_digits(), half_frozen,
                                     {.checkpoint_folder = folder, .resume = true});
      EXPECT_EQ(ended.says(kResultsAreKept), then == automatic);
      EXPECT_EQ(ended.result.digest, whole.result.digest);
      EXPECT_EQ(ended.result.network_digest, whole.result.network_digest);
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(KeptResultsOfLayers, AreNotUsedWhereTheyWouldChange) {
  const auto expect = [](const TrainingOptions& options, const TrainingData& data,
                         const std::string& reason,
                         const std::function<Network()>& make = half_frozen) {
    const KeptRun not_kept = kept_run(KeepFeatures::automatic, options, data, make);
    EXPECT_FALSE(not_kept.says(kResultsAreKept)) << reason;
    EXPECT_EQ(not_kept.says(std::string(kResultsAreComputed) + reason), !reason.empty());
    expect_same_runs(kept_run(KeepFeatures::never, options, data, make), not_kept);
  };
  TrainingOptions options = half_frozen_options();
  options.max_epochs = 2;
  TrainingData data = kept_digits();
  data.augmentation.reflect_x = true;
  expect(options, data, "the training data is augmented");
  data = kept_digits();
  data.noise.salt_and_pepper = 0.1;
  expect(options, data, "noise is added to the training data");
  options.freeze = {"norm"};  // not "first"
  expect(options, kept_digits(), "");
  options.freeze = {"first", "norm", "second"};
  options.max_epochs = 1;
  expect(options, kept_digits(), "");
  options.max_epochs = 2;
  const auto live = [](LayerPtr layer) {
    return [layer] {
      Network n({image_input({.height = 28, .width = 28, .channels = 1}), layer,
                 convolution2d({.filters = 4, .kernel = {3, 3}}), fully_connected({.units = 10}),
                 softmax()});
      n.initialize(1);
      return n;
    };
  };
  options.freeze = {"batch_normalization_1", "convolution2d_1"};
  expect(options, kept_digits(), "", live(batch_normalization()));
  options.freeze = {"convolution2d_1"};
  expect(options, kept_digits(), "", live(dropout({.probability = 0.3})));
}

std::vector<float> kept_values_of(const Network& network, const std::string& name) {
  for (const Parameter& p : network.parameters()) {
    if (p.name == name) return p.value.to_vector();
  }
  return {};
}

// fine_tuning_test.py compares the values with a reference.
TEST(Unfreezing, BeginsWithTheEpoch) {
  for (const char* solver : {"sgdm", "adam", "rmsprop"}) {
    for (const double threshold : {0.0, 0.5}) {
      TrainingOptions options = half_frozen_options();
      options.solver.type = solver;
      options.solver.gradient_threshold = threshold;
      options.solver.initial_learning_rate = 0.001;
      options.unfreeze = {"sec*:3"};
      options.max_iterations = 6;  // two epochs
      Network network = half_frozen(), later = half_frozen();
      const std::vector<float> before = kept_values_of(network, "second.weights");
      ASSERT_FALSE(before.empty());
      (void)train(network, kept_digits(), options);
      EXPECT_EQ(kept_values_of(network, "second.weights"), before);
      options.max_iterations = 7;
      (void)train(later, kept_digits(), options);
      EXPECT_NE(kept_values_of(later, "second.weights"), before);
      EXPECT_EQ(kept_values_of(later, "first.weights"), kept_values_of(network, "first.weights"));
    }
  }
}

// A layer that would learn in an epoch after the end takes part in the sums.
TEST(Unfreezing, LayersThatNeverLearnAreNotSummed) {
  for (const char* solver : {"sgdm", "adam"}) {
    for (const auto method :
         {GradientThresholdMethod::l2norm, GradientThresholdMethod::global_l2norm,
          GradientThresholdMethod::absolute_value}) {
      TrainingOptions options = half_frozen_options();
      options.solver.type = solver;
      options.solver.gradient_threshold_method = method;
      options.average_decay = 0.9;
      options.max_epochs = 5;
      options.max_iterations = 9;  // three epochs
      const KeptRun never = kept_run(KeepFeatures::automatic, options);
      options.unfreeze = {"*:5"};
      expect_same_runs(never, kept_run(KeepFeatures::automatic, options));
      options.threads = 1;
      options.freeze = {"first", "norm"};
      options.unfreeze = {"norm:2"};
      const KeptRun one = kept_run(KeepFeatures::never, options);
      options.unfreeze.push_back("first:5");
      expect_same_runs(one, kept_run(KeepFeatures::never, options));
    }
  }
}

TEST(Unfreezing, SumsOfLayersThatLearnComeFirst) {
  const Network network = half_frozen();
  std::vector<bool> left_out;
  for (const Parameter& p : network.parameters()) left_out.push_back(p.name.starts_with("second"));
  ShardPlans plans(network, {}, DType::f32), all(network, {}, DType::f32);
  plans.leave_out_of_sums(left_out);
  (void)plans.plan(16);
  (void)all.plan(16);
  const GradientLayout& layout = plans.gradient_layout();
  EXPECT_EQ(layout.bytes, all.gradient_layout().bytes);
  EXPECT_EQ(all.gradient_layout().summed_bytes, layout.bytes);
  EXPECT_LT(layout.summed_bytes, layout.bytes);
  for (size_t p = 0; p < left_out.size(); ++p) {
    EXPECT_EQ(layout.entries[p].offset >= layout.summed_bytes, left_out[p]) << p;
  }
  EXPECT_EQ(plans.plan(8)->gradient_layout().summed_bytes, layout.summed_bytes);
}

TEST(Unfreezing, RefusesWhatIsNotFrozen) {
  const auto refusal = [](std::vector<std::string> unfreeze) {
    TrainingOptions options = half_frozen_options();
    options.unfreeze = std::move(unfreeze);
    return message_of<InvalidArgument>([&] { (void)kept_run(KeepFeatures::automatic, options); });
  };
  EXPECT_NE(refusal({"secnd:2"}).find("`secnd`, which is not a layer"), std::string::npos);
  EXPECT_NE(refusal({"third:2"}).find("`freeze` holds no parameter"), std::string::npos);
  EXPECT_NE(refusal({"relu:2"}).find("`freeze` holds no parameter"), std::string::npos);
  EXPECT_NE(refusal({"second:4"}).find("max_epochs = 3, received 4"), std::string::npos);
  EXPECT_NE(refusal({"second"}).find("LAYERS:EPOCH"), std::string::npos);
}

// The bookkeeping alone: which rows are computed, and which shards they belong to.
TEST(KeptResultsOfLayers, ComputeWhatIsMissing) {
  KeptResults kept(std::make_shared<KeptMemory>(size_t{4} << 20));
  const auto bytes = [](int64_t) { return size_t{64}; };
  const std::vector<IndexRange> shards{{0, 2}, {2, 2}};
  const std::vector<int64_t> all{0, 1}, second{1}, first_batch{5, 6, 7, 8}, next{8, 5, 9, 9};
  // Rows have their observations as results.
  const auto compute = [&](const std::vector<int64_t>& batch) {
    const auto& tasks = kept.begin(batch, shards, all, bytes);
    for (const KeptResults::Task& task : tasks) {
      for (const int64_t row : task.rows) {
        const auto value = static_cast<int>(batch[static_cast<size_t>(row)]);
        if (task.trial == nullptr) std::memset(kept.results(row), value, 64);
        if (task.trial != nullptr) std::memset(task.trial, value, 128);
      }
    }
    return tasks.size();
  };
  EXPECT_EQ(compute(first_batch), 3u);  // and a trial
  kept.begin_nothing();
  EXPECT_EQ(kept.results(0), nullptr);
  // Nothing was finished, so nothing is known.
  EXPECT_EQ(compute(first_batch), 3u);
  EXPECT_TRUE(kept.finish());
  EXPECT_TRUE(kept.begin(first_batch, shards, all, bytes).empty());
  EXPECT_EQ(std::to_integer<int>(*kept.results(3)), 8);
  const auto& tasks = kept.begin(next, shards, all, bytes);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].rows, std::vector<int64_t>{2});
  EXPECT_EQ(tasks[0].shards.first, 1);
  EXPECT_EQ(kept.results(2), kept.results(3));
  EXPECT_TRUE(kept.finish());
  EXPECT_TRUE(kept.begin(next, shards, second, bytes).empty());
  EXPECT_EQ(kept.results(0), nullptr);  // computed by another member
}

// A run that a missing row needs also computes observations that no mini-batch has had.
TEST(KeptResultsOfLayers, AreComputedAheadWhereARunHasRoom) {
  KeptResults kept(std::make_shared<KeptMemory>(size_t{4} << 20), 10);
  const auto bytes = [](int64_t) { return size_t{64}; };
  const std::vector<IndexRange> shards{{0, 4}};
  const std::vector<int64_t> one{0};
  // Rows have their observations as results. Returns the others of the first task.
  const auto compute = [&](const std::vector<int64_t>& batch, int64_t refused = -1) {
    std::vector<int64_t> others;
    for (const KeptResults::Task& task : kept.begin(batch, shards, one, bytes)) {
      for (const int64_t row : task.rows) {
        const auto value = static_cast<int>(batch[static_cast<size_t>(row)]);
        if (task.trial == nullptr) std::memset(kept.results(row), value, 64);
        if (task.trial != nullptr) std::memset(task.trial, value, 256);
      }
      for (const KeptResults::Other& other : task.others) {
        std::memset(other.to, static_cast<int>(other.observation), 64);
        *other.computed = other.observation != refused;
        others.push_back(other.observation);
      }
    }
    EXPECT_TRUE(kept.finish());
    return others;
  };
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(compute({0, 1, 2, 3}), Numbers{});  // nothing is known of the position in a shard
  EXPECT_EQ(compute({0, 1, 2, 5}, 7), (Numbers{4, 6, 7}));
  EXPECT_EQ(compute({4, 6, 7, 8}), Numbers{9});
  EXPECT_EQ(std::to_integer<int>(*kept.results(0)), 4);
  EXPECT_EQ(std::to_integer<int>(*kept.results(1)), 6);
  EXPECT_EQ(std::to_integer<int>(*kept.results(2)), 7);
  EXPECT_TRUE(kept.begin(Numbers{9, 7, 5, 3}, shards, one, bytes).empty());
  EXPECT_EQ(std::to_integer<int>(*kept.results(0)), 9);
}

// Results that depend on the position in a shard are not kept.
TEST(KeptResultsOfLayers, AreNotKeptIfTheyDependOnThePlace) {
  const auto memory = std::make_shared<KeptMemory>(size_t{4} << 20);
  KeptResults kept(memory);
  const auto bytes = [](int64_t) { return size_t{64}; };
  const std::vector<IndexRange> shards{{0, 2}};
  const std::vector<int64_t> one{0}, batch{5, 6};
  for (const KeptResults::Task& task : kept.begin(batch, shards, one, bytes)) {
    for (const int64_t row : task.rows) {
      std::memset(task.trial != nullptr ? task.trial : kept.results(row), 1, 64);
    }
    if (task.trial != nullptr) std::memset(task.trial + 64, 2, 64);
  }
  EXPECT_NE(kept.results(0), nullptr);
  EXPECT_FALSE(kept.finish());
  EXPECT_EQ(kept.results(0), nullptr);
  EXPECT_EQ(kept.bytes(), 0u);
  EXPECT_TRUE(kept.begin(batch, shards, one, bytes).empty());
  EXPECT_EQ(kept.results(1), nullptr);
  EXPECT_TRUE(memory->take(memory->most()));  // all of it was given back
}

}  // namespace
}  // namespace lockstep
