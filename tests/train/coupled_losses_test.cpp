// Losses whose observations depend on each other are refused where there are several shards, and
// others are not.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/trainer.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/law_problem.h"
#include "tests/train/support.h"

namespace lockstep::coupled_losses {
namespace {

// Numbers in [-1, 1).
Tensor numbers(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& v : values) v = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
  return Tensor::from(values, shape);
}

Network network_of(bool normalizes, int64_t units = 4) {
  Network network;
  network.add(feature_input({.features = 5, .normalization = "none"}));
  network.add(fully_connected({.units = 8}));
  if (normalizes) network.add(batch_normalization());
  network.add(tanh());
  if (!normalizes) network.add(dropout({.probability = 0.2}));
  network.add(fully_connected({.units = units}));
  network.initialize(3);
  return network;
}

// Compares each row with all others (van den Oord, Li, Vinyals 2018).
Tensor info_nce(Shard& shard) {
  const Tensor a = shard.forward(shard[0]), b = shard.forward(shard[1]);
  const Tensor scores = ops::matmul(a, ops::matrix_transpose(b));
  const Tensor own = ops::astype(ops::arange(a, 0, static_cast<double>(shard.size())), DType::i32);
  return ops::softmax_cross_entropy(scores, own);
}
Tensor with_the_next(Shard& shard) {
  const Tensor y = shard.forward(shard[0]);
  return ops::mean(ops::square(y - ops::roll(y, 1, 0)), {1});
}
Tensor centered(Shard& shard) {
  const Tensor y = shard.forward(shard[0]);
  return ops::mean(ops::square(y - ops::mean(y, {0}, true)), {1});
}
// The observations depend on each other through the data, not through the network.
Tensor weighted_by_all(Shard& shard) {
  const Tensor y = shard.forward(shard[0]);
  return ops::mean(ops::square(y), {1}) * ops::sum(shard[1]);
}
// A pair of two inputs, with dropout, slopes by the input, and constants.
Tensor of_pairs(Shard& shard) {
  Tape tape;
  tape.watch(shard[0]);
  const Tensor a = shard.forward(shard[0]), b = shard.forward(shard[1]);
  const Tensor slope = tape.gradient(ops::sum(a), {shard[0]}, {.create_graph = true})[0];
  const Tensor anchors = shard.forward(numbers({shard.size(), 5}, 9));
  return ops::mean(ops::square(a - b), {1}) + ops::norm(slope, {1}) +
         ops::mean(ops::square(anchors));
}

const std::string kAccepted = "(nothing was thrown)";

std::string error_of(const std::function<void()>& call) { return testing::message_of<Error>(call); }

const std::string kRefused =
    "the loss of an observation depends on other observations of its shard; losses across "
    "observations are accepted only if the mini-batch is one shard, but it has 3";

std::vector<Tensor> batch() { return {numbers({20, 5}, 1), numbers({20, 5}, 2)}; }

TEST(CoupledLosses, AreRefusedUnlessThereIsOneShard) {
  for (const bool normalizes : {false, true}) {
    Network network = network_of(normalizes);
    ShardGroup cut(network, {.threads = 2, .shard_size = 8}), whole(network, {.shard_size = 20});
    for (const auto loss : {info_nce, with_the_next, centered, weighted_by_all}) {
      const std::string text = error_of([&] { sharded_value_and_gradient(loss, batch(), cut, 1); });
      EXPECT_NE(text.find(kRefused), std::string::npos) << text;
      EXPECT_EQ(error_of([&] { sharded_value_and_gradient(loss, batch(), whole, 1); }), kAccepted);
    }
    // A lambda is not taken for another one.
    EXPECT_EQ(error_of([&] {
                sharded_value_and_gradient(
                    [](Shard& s) { return ops::mean(ops::square(s.forward(s[0])), {1}); }, batch(),
                    cut, 2);
              }),
              kAccepted);
    const std::string text = error_of(
        [&] { sharded_value_and_gradient([](Shard& s) { return centered(s); }, batch(), cut, 3); });
    EXPECT_NE(text.find(kRefused), std::string::npos) << text;
  }
}

TEST(CoupledLosses, AreRefusedOnDevices) {
  const devicetest::FakeDevice fake;
  Network network = network_of(true);
  network.to(parse_device("cuda:0"));
  ShardGroup cut(network, {.shard_size = 8});
  const std::string text = error_of([&] { sharded_value_and_gradient(info_nce, batch(), cut, 1); });
  EXPECT_NE(text.find(kRefused), std::string::npos) << text;
}

TEST(CoupledLosses, AreRefusedInTrainingsByName) {
  TrainingProblem problem = testing::law_problem();
  problem.data.loss = {centered, "centered"};
  const std::string text =
      error_of([&] { train(problem.network, problem.data, testing::law_options(2)); });
  EXPECT_NE(text.find("the loss centered of an observation depends on other observations"),
            std::string::npos)
      << text;
}

TEST(CoupledLosses, OthersAreTriedOnceAndAccepted) {
  for (const bool normalizes : {false, true}) {
    Network network = network_of(normalizes);
    ShardGroup group(network, {.threads = 2, .shard_size = 8});
    if (!normalizes) sharded_value_and_gradient(of_pairs, batch(), group, 1);
    std::atomic<int> calls = 0;
    for (int64_t iteration = 1; iteration <= 3; ++iteration) {
      sharded_value_and_gradient(
          [&](Shard& shard) {
            ++calls;
            return ops::mean(ops::square(shard.forward(shard[0]) - 1), {1});
          },
          batch(), group, iteration);
    }
    EXPECT_EQ(calls, 3 * 3 + 2);
    // A loss that differs from call to call depends on something else.
    std::atomic<int> call = 0;
    const ShardLoss counting = [&](Shard& shard) {
      return ops::mean(ops::square(shard.forward(shard[0]) - ++call), {1});
    };
    EXPECT_EQ(error_of([&] { sharded_value_and_gradient(counting, batch(), group, 4); }),
              kAccepted);
  }
}

// As a critic's loss uses a generator. Its statistics follow the call alone, not the trial.
TEST(CoupledLosses, OtherNetworksMayNormalizeOverTheShard) {
  Network network = network_of(false), other = network_of(true, 5), counted = network_of(true, 5);
  ShardGroup group(network, {.threads = 1, .shard_size = 8});
  const auto made = [](Network& by, const Tensor& x) {
    return by.forward({x}, {.training = true, .step = {1, 1}, .record = false});
  };
  std::map<int64_t, int64_t> shards;
  const ShardLoss loss = [&](Shard& s) {
    shards[s.first()] = s.size();
    return ops::mean(ops::square(s.forward(made(other, s[0]))), {1});
  };
  sharded_value_and_gradient(loss, batch(), group, 1);
  EXPECT_EQ(shards.size(), 3u);
  for (const auto& [first, size] : shards) {
    made(counted, ops::slice(batch()[0], {{first, first + size}}));
  }
  for (size_t i = 0; i < other.state().size(); ++i) {
    const auto after = other.state()[i].value.to_vector();
    const auto expected = counted.state()[i].value.to_vector();
    ASSERT_EQ(after.size(), expected.size());
    for (size_t k = 0; k < after.size(); ++k) EXPECT_NEAR(after[k], expected[k], 1e-5);
  }
}

// Two calls with one trial, and with a trial each, in two groups.
TEST(CoupledLosses, TheTrialLeavesNoTrace) {
  std::vector<std::vector<float>> found[2];
  for (const bool both : {false, true}) {
    Network network = network_of(true);
    const ShardLoss loss = [](Shard& s) { return ops::mean(ops::square(s.forward(s[0])), {1}); };
    ShardGroup one(network, {.threads = 2, .shard_size = 8}), other(network, {.shard_size = 8});
    sharded_value_and_gradient(loss, batch(), one, 1);
    const auto step = sharded_value_and_gradient(loss, batch(), both ? other : one, 2);
    for (const Tensor& g : step.gradients) found[both].push_back(g.to_vector());
    for (const auto& state : network.state()) found[both].push_back(state.value.to_vector());
  }
  EXPECT_GT(found[0].size(), 5u);
  EXPECT_EQ(found[0], found[1]);
}

TEST(IndicesOfData, OutsideOfAnAxisNameTheObservation) {
  Network network = network_of(false);
  ShardGroup group(network, {.threads = 2, .shard_size = 8});
  std::vector<int32_t> labels(20, 1);
  labels[13] = 7;
  const std::vector<Tensor> data{batch()[0], Tensor::from(labels, {20})};
  const auto refused = [&](const ShardLoss& loss) {
    return error_of([&] { sharded_value_and_gradient(loss, data, group, 1); });
  };
  const std::string expected = "[sharded_value_and_gradient] observation 13 of the mini-batch: ";
  const std::string of_nll = refused([](Shard& s) { return ops::nll(s.forward(s[0]), s[1]); });
  EXPECT_TRUE(of_nll.starts_with(expected + "[nll] index 7 at position ")) << of_nll;
  const std::string of_embedding = refused([](Shard& s) {
    return ops::mean(s.forward(s[0]) * ops::embedding(Tensor::zeros({3, 4}), s[1]), {1});
  });
  EXPECT_TRUE(of_embedding.starts_with(expected + "[embedding] index 7 at position "))
      << of_embedding;
  // Where an op does not look at them, the loss is NaN.
  const std::string nan =
      refused([](Shard& s) { return ops::softmax_cross_entropy(s.forward(s[0]), s[1]); });
  EXPECT_NE(nan.find("the loss of observation 13 of the mini-batch is nan"), std::string::npos)
      << nan;
}

}  // namespace
}  // namespace lockstep::coupled_losses
