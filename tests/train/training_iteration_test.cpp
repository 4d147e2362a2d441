#include "lockstep/train/iteration/training_iteration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/loop/make_training_iteration.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

// A solver that only keeps the gradients that it gets.
class Keeper : public Solver {
 public:
  explicit Keeper(const Network& network) {
    for (const auto& p : network.parameters()) {
      gradients.emplace_back(static_cast<size_t>(p.value.shape().elements()));
    }
  }
  void update(size_t index, const IndexRange& elements, const float* sum,
              const UpdateScalars&) override {
    std::copy_n(sum, elements.count, gradients[index].begin() + elements.first);
  }
  UpdateNumbers numbers(size_t, const UpdateScalars&) const override { return {}; }
  std::vector<Tensor> state(size_t) const override { return {}; }
  std::vector<std::string> state_names() const override { return {}; }

  std::vector<std::vector<float>> gradients;
};

TrainingOptions options_for(int64_t mini_batch_size, int64_t shard_size) {
  TrainingOptions options;
  options.mini_batch_size = mini_batch_size;
  options.shards.size = shard_size;
  options.seed = 1;
  return options;
}

MiniBatch batch_of(int64_t n, int64_t channels = 1, int64_t size = 12) {
  MiniBatch batch;
  std::vector<int32_t> labels;
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < n; ++i) {
    batch.observations.push_back(i);
    labels.push_back(static_cast<int32_t>(i * 3 % 5));
    const Image image = testing::patterned(size, size, channels, static_cast<uint32_t>(i + 1));
    pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
  }
  batch.set("input", Tensor::from(pixels, {n, channels, size, size}));
  batch.set("labels", Tensor::from(labels, {n}));
  return batch;
}

// A network without softmax if `logits` is set.
Network network_without_normalization(bool logits = false) {
  Network network{image_input({.height = 12, .width = 12, .channels = 1}),
                  convolution2d({.filters = 16, .kernel = {3, 3}, .padding = same_padding}),
                  relu(),
                  max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                  convolution2d({.filters = 11, .kernel = {3, 3}}),
                  relu(),
                  fully_connected({.units = 5})};
  if (!logits) network.add(softmax());
  network.initialize(1);
  network.state_value("image_input_1.offset").data<float>()[0] = 127;
  network.state_value("image_input_1.factor").data<float>()[0] = 0.01f;
  return network;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / size);
}

TEST(Shards, AreCutByPositionAndDifferByAtMostOne) {
  const auto sizes = [](int64_t n, int64_t size) {
    std::vector<int64_t> all;
    int64_t next = 0;
    for (const auto& range : cut_into_shards(n, size)) {
      EXPECT_EQ(range.first, next);
      next += range.count;
      all.push_back(range.count);
    }
    EXPECT_EQ(next, n);
    return all;
  };
  EXPECT_EQ(sizes(100, 7), (std::vector<int64_t>{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6}));
  EXPECT_EQ(sizes(20, 7), (std::vector<int64_t>{7, 7, 6}));
  EXPECT_EQ(sizes(128, 16), std::vector<int64_t>(8, 16));
  EXPECT_EQ(sizes(3, 16), std::vector<int64_t>{3});
  EXPECT_EQ(sizes(17, 16), (std::vector<int64_t>{9, 8}));
  EXPECT_EQ(sizes(1, 1), std::vector<int64_t>{1});
  EXPECT_THROW(cut_into_shards(0, 4), InvalidArgument);
  EXPECT_THROW(cut_into_shards(4, 0), InvalidArgument);
}

TEST(TrainingIteration, GradientsOfShardsAddUpToThoseOfTheWholeMiniBatch) {
  const MiniBatch batch = batch_of(20);
  const auto run = [&](int64_t shard_size, int threads, IterationOutcome& result) {
    Network network = network_without_normalization();
    Keeper keeper(network);
    ThreadPool pool(threads);
    const auto step =
        make_training_iteration(network, keeper, pool, options_for(batch.size(), shard_size));
    step->begin(batch, {0.1, 1, 20});
    result = step->finish();
    int64_t shards = 0;
    for (int64_t n : step->executor().shards_by_worker()) shards += n;
    EXPECT_EQ(shards, (20 + shard_size - 1) / shard_size);
    return keeper.gradients;
  };
  IterationOutcome whole_result;
  const auto whole = run(20, 1, whole_result);
  for (const int64_t shard_size : {16, 7, 3, 1}) {
    IterationOutcome result;
    const auto parts = run(shard_size, 2, result);
    EXPECT_NEAR(result.loss_sum, whole_result.loss_sum, 1e-5 * whole_result.loss_sum);
    EXPECT_EQ(result.correct, whole_result.correct);
    for (size_t p = 0; p < whole.size(); ++p) {
      EXPECT_LE(distance(parts[p], whole[p]), 1e-6) << "shard size " << shard_size << ", " << p;
    }
  }
}

TEST(TrainingIteration, GradientsAreThoseOfTheTape) {
  const MiniBatch batch = batch_of(6);
  Network network = network_without_normalization();
  Keeper keeper(network);
  ThreadPool pool(1);
  const auto step = make_training_iteration(network, keeper, pool, options_for(6, 3));
  step->begin(batch, {0.1, 1, 6});
  const IterationOutcome result = step->finish();
  Network same = network_without_normalization(true);
  Tape tape;
  tape.watch(same.parameter_values());
  const Tensor logits = same.forward({batch.input().tensor()}, {.training = true});
  const Tensor loss =
      ops::sum(ops::softmax_cross_entropy(logits, Tensor::from(batch.labels(), {6})));
  EXPECT_NEAR(result.loss_sum, static_cast<double>(loss.item()), 1e-5);
  const auto gradients = tape.gradient(loss, same.parameter_values());
  for (size_t p = 0; p < gradients.size(); ++p) {
    EXPECT_LE(distance(keeper.gradients[p], gradients[p].to_vector()), 1e-6)
        << network.parameters()[p].name;
  }
}

TEST(TrainingIteration, BatchStatisticsOfShardsAreCombinedAsStated) {
  // Normalizes the pixels themselves, so the statistics can be computed from the batch.
  Network network{image_input({.height = 12, .width = 12, .channels = 3}),
                  batch_normalization({.momentum = 0.25}),
                  global_average_pooling2d(),
                  flatten(),
                  fully_connected({.units = 5}),
                  softmax()};
  network.initialize(1);
  Keeper keeper(network);
  ThreadPool pool(2);
  const int64_t n = 20, pixels = 144;
  const auto step = make_training_iteration(network, keeper, pool, options_for(n, 7));
  double mean[3] = {}, variance[3] = {1, 1, 1};
  MiniBatch batch = batch_of(n, 3);
  for (int iteration = 1; iteration <= 3; ++iteration) {
    // Shards of different brightness, so that the spread of their means matters.
    const std::span<uint8_t> values = batch["input"].values<uint8_t>();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint8_t>(values[i] / 4 + i / 1500 * 10);
    }
    step->begin(batch, {0.1, iteration, static_cast<double>(n)});
    step->finish();
    for (int64_t c = 0; c < 3; ++c) {
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t p = 0; p < pixels; ++p) {
          sum += values[static_cast<size_t>((i * 3 + c) * pixels + p)];
        }
      }
      const double m = sum / static_cast<double>(n * pixels);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t p = 0; p < pixels; ++p) {
          const double d =
              static_cast<double>(values[static_cast<size_t>((i * 3 + c) * pixels + p)]) - m;
          squares += d * d;
        }
      }
      mean[c] = 0.75 * mean[c] + 0.25 * m;
      variance[c] = 0.75 * variance[c] + 0.25 * squares / static_cast<double>(n * pixels);
      const auto at = static_cast<size_t>(c);
      const double moving =
          static_cast<double>(network.state_value("batch_normalization_1.mean").to_vector()[at]);
      const double spread = static_cast<double>(
          network.state_value("batch_normalization_1.variance").to_vector()[at]);
      EXPECT_NEAR(moving, mean[c], 1e-5 * mean[c]) << "iteration " << iteration;
      EXPECT_NEAR(spread, variance[c], 1e-5 * variance[c]) << "iteration " << iteration;
    }
  }
}

TEST(TrainingIteration, MiniBatchesOfOtherSizesAreComputedToo) {
  Network network = network_without_normalization();
  Keeper keeper(network);
  ThreadPool pool(2);
  const auto step = make_training_iteration(network, keeper, pool, options_for(20, 7));
  for (const int64_t n : {20, 5, 13, 20, 1}) {
    const MiniBatch batch = batch_of(n);
    step->begin(batch, {0.1, 1, static_cast<double>(n)});
    const double loss = step->finish().loss_sum;
    Network fresh = network_without_normalization();
    Keeper expected(fresh);
    const auto alone = make_training_iteration(fresh, expected, pool, options_for(n, n));
    alone->begin(batch, {0.1, 1, static_cast<double>(n)});
    EXPECT_NEAR(loss, alone->finish().loss_sum, 1e-5 * loss);
    for (size_t p = 0; p < keeper.gradients.size(); ++p) {
      EXPECT_LE(distance(keeper.gradients[p], expected.gradients[p]), 2e-6) << n << ", " << p;
    }
  }
}

TEST(TrainingIteration, UpdatesReachTheNextIterationAndTheDigest) {
  Network network = testing::small_classifier();
  TrainingOptions options;
  const auto solver = make_solver(network, options);
  ThreadPool pool(2);
  const auto step = make_training_iteration(network, *solver, pool, options_for(20, 7));
  MiniBatch batch = batch_of(20, 1, 28);
  std::vector<double> losses;
  for (int64_t iteration = 1; iteration <= 8; ++iteration) {
    step->begin(batch, {0.05, iteration, 20});
    const IterationOutcome outcome = step->finish();
    losses.push_back(outcome.loss_sum);
    EXPECT_EQ(outcome.digest, state_digest(network, *solver, iteration));
  }
  EXPECT_LT(losses.back(), losses.front());
  // Every bit of every part is covered.
  const Digest before = state_digest(network, *solver, 8);
  EXPECT_NE(state_digest(network, *solver, 9), before);
  const auto expect_counts = [&](const Tensor& tensor, const std::string& name) {
    auto* words = static_cast<uint32_t*>(tensor.raw());
    words[tensor.shape().elements() - 1] ^= 1;
    EXPECT_NE(state_digest(network, *solver, 8), before) << name;
    words[tensor.shape().elements() - 1] ^= 1;
  };
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    expect_counts(network.parameters()[p].value, network.parameters()[p].name);
    expect_counts(solver->state(p)[0], "velocity of " + network.parameters()[p].name);
  }
  for (const auto& state : network.state()) expect_counts(state.value, state.name);
  EXPECT_EQ(state_digest(network, *solver, 8), before);
}

TEST(TrainingIteration, NetworksOfSeveralOutputsAreRefused) {
  Network network;
  network.add(image_input({.height = 12, .width = 12, .channels = 1}), "in");
  network.add(fully_connected({.units = 5}), "a", {"in"});
  network.add(fully_connected({.units = 5}), "b", {"in"});
  network.initialize(1);
  Keeper keeper(network);
  ThreadPool pool(1);
  EXPECT_THROW(make_training_iteration(network, keeper, pool, options_for(4, 4)), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
