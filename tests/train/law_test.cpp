// The law: who computes changes the speed, never the answer. A second build adds sums in order of
// arrival; there each test of the suite Law must fail.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "lockstep/base/os/file.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/train/state/receipt.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/train/known_files.h"
#include "tests/train/law_problem.h"
#include "tests/train/same_history.h"

namespace lockstep {
namespace {

using testing::expect_same_history;
using testing::TemporaryFolder;

constexpr int64_t kIterations = testing::law_iterations;

TrainingData test_data() { return testing::law_data(); }

TrainingOptions test_options(int64_t threads) { return testing::law_options(threads); }

TrainingResult run(const TrainingOptions& options, const TrainingControl& control = {}) {
  Network network = testing::law_network();
  return train(network, test_data(), options, control);
}

void expect_everyone_worked(const TrainingResult& result, const char* what) {
  std::string counts;
  for (int64_t shards : result.shards_by_thread) {
    counts += " " + std::to_string(shards);
    EXPECT_GT(shards, 0) << "a thread stayed idle: " << what;
  }
  std::printf("%s: shards by thread%s, digest %s\n", what, counts.c_str(),
              result.digest.to_string().c_str());
}

TEST(Law, OneDigestForAnyNumberOfThreads) {
  const TrainingResult one = run(test_options(1));
  ASSERT_EQ(one.last_iteration, kIterations);
  expect_everyone_worked(one, "1 thread");
  for (int threads : {2, 3, 5, 8}) {
    const TrainingResult many = run(test_options(threads));
    expect_everyone_worked(many, (std::to_string(threads) + " threads").c_str());
    expect_same_history(one, many);
  }
}

TEST(Law, OneDigestForThreadsThatComeAndGo) {
  const TrainingResult one = run(test_options(1));
  TrainingControl control;
  int64_t calls = 0;
  control.threads = [&] { return std::array<int64_t, 5>{4, 1, 3, 1, 2}[calls++ % 5]; };
  const TrainingResult changing = run(test_options(4), control);
  expect_everyone_worked(changing, "1 to 4 threads");
  EXPECT_GT(calls, kIterations);
  expect_same_history(one, changing);
}

TEST(Law, OneDigestForAdamToo) {
  const auto with = [](int64_t threads) {
    TrainingOptions options = test_options(threads);
    options.solver.type = "adam";
    options.solver.initial_learning_rate = 0;
    options.max_epochs = 1;
    return run(options);
  };
  const TrainingResult one = with(1), three = with(3);
  expect_everyone_worked(three, "adam, 3 threads");
  expect_same_history(one, three);
}

// The layers that testing::law_network() lacks, in two branches.
Network network_of_other_layers() {
  Network n;
  n.add(image_input({.height = 28, .width = 28, .channels = 1}));
  n.add(convolution2d({.filters = 11, .kernel = {5, 5}, .stride = {4, 4}}));
  n.add(instance_normalization());
  n.add(leaky_relu());
  n.add(convolution2d({.filters = 16, .kernel = {3, 3}, .padding = same_padding}));
  n.add(group_normalization({.groups = 4}), "norm");
  n.add(gelu());
  n.add(elu());
  n.add(tanh(), "left");
  n.add(softplus(), "right", {"norm"});
  n.add(gelu({.approximation = "tanh"}));
  n.add(sigmoid(), "gate");
  n.add(multiplication(), "product", {"left", "gate", "norm"});
  n.add(reshape({.size = {36, 4, 4}}));
  n.add(layer_normalization());
  n.add(swish());
  n.add(fully_connected({.units = 10}));
  n.add(softmax());
  n.initialize(11);
  return n;
}

TEST(Law, OneDigestForOtherLayersToo) {
  const auto with = [](int64_t threads) {
    TrainingOptions options = test_options(threads);
    options.max_epochs = 1;
    Network network = network_of_other_layers();
    return train(network, test_data(), options);
  };
  const TrainingResult one = with(1), three = with(3);
  EXPECT_TRUE(std::isfinite(one.iterations.back().loss));
  expect_everyone_worked(three, "other layers, 3 threads");
  expect_same_history(one, three);
}

TEST(Law, OneDigestForEverySolverScheduleAndThreshold) {
  struct Row {
    const char* solver;
    std::vector<std::string> schedule;
    GradientThresholdMethod method;
  };
  for (const Row& row :
       {Row{"sgdm", {"warmup", "cosine"}, GradientThresholdMethod::global_l2norm},
        Row{"adamw", {"polynomial", "cyclical"}, GradientThresholdMethod::l2norm},
        Row{"rmsprop", {"exponential", "piecewise"}, GradientThresholdMethod::absolute_value}}) {
    const auto with = [&](int64_t threads, const TrainingControl& control = {}) {
      TrainingOptions options = test_options(threads);
      options.solver.type = row.solver;
      options.schedule.types = row.schedule;
      options.schedule.epochs = {0.5};
      options.solver.gradient_threshold = 0.01;
      options.solver.gradient_threshold_method = row.method;
      options.class_weights = {1, 2, 1, 3, 1, 1, 0.5, 1, 1, 0};
      return run(options, control);
    };
    const TrainingResult one = with(1), three = with(3);
    expect_everyone_worked(three, row.solver);
    expect_same_history(one, three);
    const TemporaryFolder folder;
    TrainingControl control;
    control.checkpoint_folder = folder.path;
    control.stop_after = 2;
    with(2, control);
    control.stop_after = 0;
    control.resume = true;
    const TrainingResult resumed = with(3, control);
    ASSERT_EQ(resumed.iterations.front().iteration, 3) << "it has begun anew";
    EXPECT_EQ(resumed.digest, one.digest) << row.solver;
  }
}

TEST(Law, OneDigestInBf16) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const auto with = [&](int64_t threads, const TrainingControl& control = {}) {
    TrainingOptions options = test_options(threads);
    options.precision.type = Precision::bf16;
    return run(options, control);
  };
  const TrainingResult one = with(1);
  for (int threads : {2, 3, 8}) {
    const TrainingResult many = with(threads);
    expect_everyone_worked(many, "bf16");
    expect_same_history(one, many);
  }
  const TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path;
  control.stop_after = 5;
  with(2, control);
  control.stop_after = 0;
  control.resume = true;
  const TrainingResult resumed = with(3, control);
  ASSERT_EQ(resumed.iterations.front().iteration, 6) << "it has begun anew";
  EXPECT_EQ(resumed.digest, one.digest);
  EXPECT_NE(one.digest, run(test_options(2)).digest);
}

TEST(Law, OneDigestAfterStopAndResumeAtAnyIterationOnOtherThreads) {
  const TrainingResult whole = run(test_options(2));
  for (int64_t stop = 1; stop < kIterations; ++stop) {
    const TemporaryFolder folder;
    TrainingControl control;
    control.checkpoint_folder = folder.path;
    control.stop_after = stop;
    const TrainingResult first = run(test_options(1 + stop % 3), control);
    ASSERT_EQ(first.last_iteration, stop);
    ASSERT_TRUE(first.stopped);
    control.stop_after = 0;
    control.resume = true;
    const TrainingResult second = run(test_options(1 + (stop + 1) % 5), control);
    ASSERT_EQ(second.iterations.front().iteration, stop + 1);
    EXPECT_EQ(second.digest, whole.digest) << "stopped after iteration " << stop;
    EXPECT_EQ(second.iterations.back().chain, whole.iterations.back().chain);
    ASSERT_EQ(second.validations.size(), whole.validations.size());
    EXPECT_EQ(second.validations.back().loss, whole.validations.back().loss);
  }
}

TEST(Law, EarlierUsesOfTheNetworkDoNotMatter) {
  const TrainingResult whole = run(test_options(2));
  const TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path;
  control.stop_after = 2;
  run(test_options(2), control);
  control.stop_after = 0;
  control.resume = true;
  Network network = testing::law_network();
  network.predict(Tensor::zeros({3, 1, 28, 28}));
  const TrainingResult resumed = train(network, test_data(), test_options(2), control);
  ASSERT_EQ(resumed.iterations.front().iteration, 3) << "it has begun anew";
  EXPECT_EQ(resumed.digest, whole.digest);
}

TEST(Law, LoadingAndMemoryDoNotMatter) {
  const TrainingResult plain = run(test_options(2));
  TrainingOptions options = test_options(2);
  options.data.loader_threads = 3;
  options.data.prefetch = 1;
  options.data.cache_mib = 0;
  expect_same_history(plain, run(options));
}

TEST(Law, TheCallersRoundingModeDoesNotMatter) {
  const TrainingResult nearest = run(test_options(2));
  const int before = std::fegetround();
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  TrainingResult upward;
  {
    // The network is initialized in the caller's mode. The law covers only training.
    std::fesetround(before);
    Network network = testing::law_network();
    const TrainingData data = test_data();
    std::fesetround(FE_UPWARD);
    upward = train(network, data, test_options(2));
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller's mode was not given back";
  std::fesetround(before);
  expect_same_history(nearest, upward);
}

TEST(Law, ReceiptsOfTwoRunsAreTheSameBytes) {
  const TemporaryFolder a, b;
  for (const auto& [folder, threads] : {std::pair{&a, 1}, std::pair{&b, 3}}) {
    ReceiptWriter writer(local_files(), folder->path);
    TrainingControl control;
    control.observers = {&writer};
    run(test_options(threads), control);
    writer.finish();
  }
  const std::string receipt = read_text(local_files(), a.path + "/receipt.jsonl");
  EXPECT_GT(receipt.size(), 100u);
  EXPECT_EQ(receipt, read_text(local_files(), b.path + "/receipt.jsonl"));
}

TEST(Law, OneDigestForImagesThatAnEarlierTrainingRead) {
  const TrainingResult one = run(test_options(1));
  const testing::KeptReadings kept;
  const auto again = [&](int64_t threads, int64_t loader_threads, int64_t cache_mib,
                         bool known = true) {
    TrainingData data = test_data();
    data.training = std::make_shared<testing::KnownFiles>(data.training);
    TrainingOptions options = test_options(threads);
    options.data.loader_threads = loader_threads;
    options.data.cache_mib = cache_mib;
    testing::ReadAtFirst first(*data.training);
    TrainingControl control;
    control.observers = {&first};
    Network network = testing::law_network();
    const TrainingResult result = train(network, data, options, control);
    EXPECT_EQ(first.reads, known ? 0 : data.training->size());
    EXPECT_EQ(kept.size(), 1);
    expect_same_history(one, result);
  };
  again(2, 1, 100, false);
  again(1, 1, 100);
  again(3, 2, 100);
  again(8, 1, 100);
  again(2, 2, 0);
}

// States what is not promised: another shard size gives other bits. Not a test of the suite Law,
// because the two results differ in any order of sums.
TEST(NoLaw, AnotherShardSizeIsAnotherComputation) {
  TrainingOptions options = test_options(2);
  options.shards.size = 8;
  EXPECT_NE(run(options).digest, run(test_options(2)).digest);
}

}  // namespace
}  // namespace lockstep
