// The law for networks of fully connected layers: threads compute several shards of such a network
// together. A second build adds sums in order of arrival; there each test of the suites Law and
// LawOfWorkers must fail.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/trainer.h"
#include "tests/train/law_problem.h"
#include "tests/train/same_history.h"

namespace lockstep {
namespace {

using testing::expect_same_history;

// Odd sizes on purpose.
Network dense_network() {
  Network network({image_input({.height = 28, .width = 28, .channels = 1}), flatten(),
                   fully_connected({.units = 51}), relu(), dropout({.probability = 0.2}),
                   fully_connected({.units = 17, .bias = false}), gelu(),
                   fully_connected({.units = 1}), tanh(), fully_connected({.units = 10}),
                   softmax()});
  network.initialize(11);
  return network;
}

TrainingProblem dense_problem() { return {dense_network(), testing::law_data()}; }

TrainingResult run_dense(const TrainingOptions& options, const TrainingControl& control = {}) {
  const auto call = make_call<&dense_problem>();
  TrainingProblem problem = call();
  return train(call, problem.network, problem.data, options, control);
}

TrainingOptions dense_options(int64_t threads, int64_t workers = 0) {
  TrainingOptions options = testing::law_options(threads);
  options.class_weights = {1, 2, 1, 3, 1, 1, 0.5, 1, 1, 0};
  options.shards.check_frequency = 5;
  options.workers.count = workers;
  return options;
}

void keep_gradients(const char*, int64_t, int64_t, void*, size_t) {}

// With a hook for gradients of shards, shards are computed one by one.
struct OneByOne {
  OneByOne() { set_corruption_hook(keep_gradients); }
  ~OneByOne() { set_corruption_hook(nullptr); }
};

TEST(Law, OneDigestForDenseNetworksByAnyThreads) {
  const TrainingResult one = run_dense(dense_options(1));
  ASSERT_EQ(one.last_iteration, testing::law_iterations);
  for (const int threads : {2, 5}) {
    const TrainingResult many = run_dense(dense_options(threads));
    for (const int64_t shards : many.shards_by_thread) EXPECT_GT(shards, 0) << "an idle thread";
    expect_same_history(one, many);
  }
}

TEST(DenseNetworks, HaveTheSameBitsShardByShard) {
  const TrainingResult together = run_dense(dense_options(2));
  const OneByOne hook;
  expect_same_history(together, run_dense(dense_options(2)));
}

// Shards of one row, the whole mini-batch as one shard, mini-batches of one row.
TEST(DenseNetworks, HaveTheSameBitsForAnySizes) {
  for (const auto& [mini_batch, shard] : {std::pair<int64_t, int64_t>{9, 1}, {100, 100}, {1, 1}}) {
    SCOPED_TRACE(std::to_string(mini_batch) + " in shards of " + std::to_string(shard));
    TrainingOptions options = dense_options(2);
    options.mini_batch_size = mini_batch;
    options.shards.size = shard;
    options.max_iterations = 3;
    options.shards.check_frequency = 0;
    const TrainingResult together = run_dense(options);
    ASSERT_EQ(together.last_iteration, 3);
    options.threads = 3;
    expect_same_history(together, run_dense(options));
    const OneByOne hook;
    expect_same_history(together, run_dense(options));
  }
}

// Gradients of rows of more than 1,024 inputs are used in blocks of columns; in rows of 1,300 the
// blocks of the digest lie across them.
TEST(DenseNetworks, HaveTheSameBitsInWideRows) {
  const auto run_wide = [](int threads) {
    Network network({image_input({.height = 28, .width = 28, .channels = 1}), flatten(),
                     fully_connected({.units = 1'300}), relu(), fully_connected({.units = 1'536}),
                     relu(), fully_connected({.units = 10}), softmax()});
    network.initialize(11);
    TrainingOptions options = dense_options(threads);
    options.solver.type = "adam";
    options.max_iterations = 2;
    options.shards.check_frequency = 0;
    return train(network, testing::law_data(), options);
  };
  const TrainingResult together = run_wide(2);
  ASSERT_EQ(together.last_iteration, 2);
  expect_same_history(together, run_wide(3));
  const Poisoned memory(Poison::not_a_number);
  expect_same_history(together, run_wide(1));
  const OneByOne hook;
  expect_same_history(together, run_wide(2));
}

TEST(DenseNetworks, HaveTheSameBitsInFilledMemory) {
  const TrainingResult plain = run_dense(dense_options(2));
  for (const Poison pattern : {Poison::not_a_number, Poison::huge}) {
    const Poisoned memory(pattern);
    expect_same_history(plain, run_dense(dense_options(2)));
  }
}

// In a worker: for all its life.
TrainingProblem dense_problem_in_filled_memory(bool huge) {
  static const Poisoned memory(huge ? Poison::huge : Poison::not_a_number);
  return dense_problem();
}

// Also what members of a host share: the rows that they exchange, and the sum.
TEST(DenseNetworks, HaveTheSameBitsInFilledMemoryOfWorkers) {
  const TrainingResult plain = run_dense(dense_options(2));
  for (const bool huge : {false, true}) {
    const auto call = make_call<&dense_problem_in_filled_memory>(huge);
    TrainingProblem problem = dense_problem();
    TrainingOptions options = dense_options(2, 3);
    options.workers.load = {1, 2, 3};
    expect_same_history(plain, train(call, problem.network, problem.data, options));
  }
}

TEST(LawOfWorkers, OneDigestForDenseNetworks) {
  const TrainingResult one = run_dense(dense_options(1));
  for (const int64_t workers : {2, 3}) {
    TrainingOptions options = dense_options(2, workers);
    if (workers == 3) options.workers.load = {1, 2, 3};
    const TrainingResult many = run_dense(options);
    for (const auto& w : many.workers) EXPECT_GT(w.shards, 0) << "worker " << w.worker;
    expect_same_history(one, many);
  }
}

TrainingOptions bf16_options(int64_t threads, int64_t workers = 0) {
  TrainingOptions options = dense_options(threads, workers);
  options.precision.type = Precision::bf16;
  return options;
}

// Shards of 7 and 6 rows, so that rows do not always make pairs.
TEST(Law, OneDigestForDenseNetworksInBf16) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const TrainingResult one = run_dense(bf16_options(1));
  ASSERT_EQ(one.last_iteration, testing::law_iterations);
  EXPECT_NE(one.digest, run_dense(dense_options(1)).digest);
  for (const int threads : {2, 5}) expect_same_history(one, run_dense(bf16_options(threads)));
}

TEST(DenseNetworksInBf16, HaveTheSameBitsShardByShard) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  for (const auto& [mini_batch, shard] : {std::pair<int64_t, int64_t>{30, 7}, {9, 1}, {100, 100}}) {
    SCOPED_TRACE(std::to_string(mini_batch) + " in shards of " + std::to_string(shard));
    TrainingOptions options = bf16_options(2);
    options.mini_batch_size = mini_batch;
    options.shards.size = shard;
    options.max_iterations = 3;
    options.shards.check_frequency = 0;
    const TrainingResult together = run_dense(options);
    ASSERT_EQ(together.last_iteration, 3);
    const OneByOne hook;
    expect_same_history(together, run_dense(options));
  }
}

TEST(DenseNetworksInBf16, HaveTheSameBitsInFilledMemory) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const TrainingResult plain = run_dense(bf16_options(2));
  for (const Poison pattern : {Poison::not_a_number, Poison::huge}) {
    const Poisoned memory(pattern);
    expect_same_history(plain, run_dense(bf16_options(2)));
  }
}

TEST(LawOfWorkers, OneDigestForDenseNetworksInBf16) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const TrainingResult one = run_dense(bf16_options(1));
  for (const int64_t workers : {2, 3}) {
    TrainingOptions options = bf16_options(2, workers);
    if (workers == 3) options.workers.load = {1, 2, 3};
    const TrainingResult many = run_dense(options);
    for (const auto& w : many.workers) EXPECT_GT(w.shards, 0) << "worker " << w.worker;
    expect_same_history(one, many);
  }
}

// The factors are bf16; parameters, their updates and the losses keep the precision of f32.
TEST(DenseNetworksInBf16, KeepParametersInF32) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  TrainingOptions options = bf16_options(2);
  options.solver.initial_learning_rate = 1e-3;  // so that differences do not grow
  const auto call = make_call<&dense_problem>();
  TrainingProblem narrow = call(), wide = call();
  const TrainingResult in_bf16 = train(call, narrow.network, narrow.data, options);
  options.precision.type = Precision::fp32;
  const TrainingResult in_f32 = train(call, wide.network, wide.data, options);
  size_t finer = 0;
  for (const Tensor& p : narrow.network.parameter_values()) {
    ASSERT_EQ(p.dtype(), DType::f32);
    for (const float x : p.to_vector()) finer += to_float(to_bfloat16(x)) != x;
  }
  EXPECT_GT(finer, 0u) << "parameters are rounded to bf16";
  for (size_t i = 0; i < in_f32.iterations.size(); ++i) {
    const double exact = in_f32.iterations[i].loss;
    EXPECT_NEAR(in_bf16.iterations[i].loss, exact, 2e-2 * exact) << "iteration " << i + 1;
  }
}

// The accounts of sums over shards in the profile of a training, which exist only for bundles.
std::vector<ProfileAccount> sums_over_shards() {
  TrainingOptions options = dense_options(2);
  options.shards.check_frequency = 0;
  options.max_iterations = 2;
  const TrainingResult result = run_dense(options, {.profile = true});
  std::vector<ProfileAccount> sums;
  for (const ProfileAccount& account : result.profile.value().accounts) {
    if (account.name.ends_with(": gradient of parameters")) sums.push_back(account);
  }
  return sums;
}

TEST(DenseNetworks, AreComputedInBundles) {
  const auto sums = sums_over_shards();
  EXPECT_EQ(sums.size(), 4u) << "one for each fully connected layer";
  for (const ProfileAccount& sum : sums) EXPECT_GT(sum.floor, 0) << sum.name;
  const OneByOne hook;
  EXPECT_TRUE(sums_over_shards().empty());
}

}  // namespace
}  // namespace lockstep
