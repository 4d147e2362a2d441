#include "lockstep/train/custom_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/train/law_network.h"

namespace lockstep {
namespace {

std::vector<float> random_values(int64_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(engine);
  return values;
}

Tensor random_tensor(const Shape& shape, unsigned seed) {
  return Tensor::from(std::span<const float>(random_values(shape.elements(), seed)), shape);
}

Tensor labels(int64_t n, int32_t classes) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<int32_t>(i * 7 % classes));
  return Tensor::from(std::span<const int32_t>(values), {n});
}

// A smooth network with a convolution and batch normalization.
Network tiny_network() {
  Network network({image_input({.height = 5, .width = 4, .channels = 2, .normalization = "none"}),
                   convolution2d({.filters = 3, .kernel = {3, 3}}), batch_normalization(), tanh(),
                   fully_connected({.units = 4})});
  network.initialize(3);
  return network;
}

Network plain_network() {
  Network network;
  network.add(image_input({.height = 5, .width = 4, .channels = 2, .normalization = "none"}));
  network.add(convolution2d({.filters = 3, .kernel = {3, 3}}));
  network.add(tanh(), "features");
  network.add(fully_connected({.units = 4}), "scores");
  network.initialize(3);
  return network;
}

double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double difference = 0, size = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t p = 0; p < a.size(); ++p) {
    const auto x = a[p].to_vector(), y = b[p].to_vector();
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
      difference += d * d;
      size += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    }
  }
  return std::sqrt(difference / size);
}

Tensor loss_of(Shard& shard) {
  return ops::softmax_cross_entropy(shard.forward(shard[0]), shard[1]);
}

template <class Failing>
std::string error_of(Failing failing) {
  try {
    failing();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ValueAndGradient, OfAnyTensors) {
  const Tensor x = random_tensor({2, 3}, 1), y = random_tensor({2, 3}, 2);
  const Tensor both[] = {x, y};
  const auto [value, gradients] = value_and_gradient(
      [&] {
        return ops::sum(ops::multiply({x, x, y}));
      },
      both);
  const auto a = x.to_vector(), b = y.to_vector(), dx = gradients[0].to_vector(),
             dy = gradients[1].to_vector();
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i] * a[i] * b[i]);
    EXPECT_NEAR(dx[i], 2 * a[i] * b[i], 1e-6);
    EXPECT_NEAR(dy[i], a[i] * a[i], 1e-6);
  }
  EXPECT_NEAR(value, sum, 1e-6);
}

TEST(ValueAndGradient, NamesWhatIsWrong) {
  const Tensor x = random_tensor({2, 3}, 1);
  const Tensor one[] = {x};
  expect_contains(error_of([&] { value_and_gradient([&] { return ops::relu(x); }, one); }),
                  "must be one f32 number");
  expect_contains(error_of([&] { value_and_gradient([&] { return Tensor(); }, one); }), "nothing");
  const Tensor infinite = Tensor::full({2, 3}, std::numeric_limits<float>::infinity());
  expect_contains(error_of([&] {
                    value_and_gradient([&] { return ops::sum(ops::add({x, infinite})); }, one);
                  }),
                  "the loss is inf");
}

// Compares with central differences of the mean loss, which is summed in double.
TEST(ShardedValueAndGradient, GradientsAreThoseOfTheLoss) {
  Network network = tiny_network();
  const Tensor x = random_tensor({11, 2, 5, 4}, 4), y = labels(11, 4);
  ShardGroup group(network, {.threads = 2, .shard_size = 4});
  const auto value = [&] { return sharded_value_and_gradient(loss_of, {x, y}, group, 1).value; };
  const auto gradients = sharded_value_and_gradient(loss_of, {x, y}, group, 1).gradients;
  ASSERT_EQ(gradients.size(), network.parameters().size());
  std::vector<Tensor> expected;
  for (const auto& parameter : network.parameters()) {
    const Tensor slopes(parameter.value.shape(), DType::f32);
    auto* const w = parameter.value.data<float>();
    for (int64_t i = 0; i < slopes.shape().elements(); ++i) {
      const float before = w[i];
      constexpr float kStep = 1.0f / 128;
      w[i] = before + kStep;
      const double above = value();
      w[i] = before - kStep;
      const double below = value();
      w[i] = before;
      slopes.data<float>()[i] = static_cast<float>((above - below) / (2 * double{kStep}));
    }
    expected.push_back(slopes);
  }
  EXPECT_LT(distance(gradients, expected), 1e-3);
}

TEST(ShardedValueAndGradient, AgreesWithOneTape) {
  Network network = plain_network();
  const Tensor x = random_tensor({23, 2, 5, 4}, 4), y = labels(23, 4);
  const auto whole = value_and_gradient(
      [&] {
        const Tensor logits = network.forward({x}, {.training = true});
        return ops::mean(ops::softmax_cross_entropy(logits, y));
      },
      network);
  for (int64_t shard_size : {1, 7, 23, 100}) {
    ShardGroup group(network, {.threads = 3, .shard_size = shard_size});
    const auto sharded = sharded_value_and_gradient(loss_of, {x, y}, group, 1);
    EXPECT_NEAR(sharded.value, whole.value, 1e-6);
    EXPECT_LT(distance(sharded.gradients, whole.gradients), 1e-5) << shard_size;
  }
}

// Two runs of the network, gradients through its inputs, and direct use of parameters.
TEST(ShardedValueAndGradient, TakesOddLosses) {
  Network network = plain_network();
  const Tensor x = random_tensor({20, 2, 5, 4}, 4), y = labels(20, 4);
  const Tensor weights = network.parameter("scores.weights"),
               bias = network.parameter("scores.bias");
  const auto odd = [&](const Tensor& features, const Tensor& scores, const Tensor& again,
                       const Tensor& wanted) {
    const Tensor direct = ops::fully_connected(ops::flatten(features), weights, bias);
    return ops::add({ops::softmax_cross_entropy(scores, wanted),
                     ops::softmax_cross_entropy(again, wanted),
                     ops::mean_squared_error(ops::tanh(direct), scores)});
  };
  const std::vector<std::string> outputs{"features", "scores"};
  const auto whole = value_and_gradient(
      [&] {
        const auto both = network.forward_all({x}, {.training = true, .outputs = outputs});
        const Tensor changed = ops::reshape(ops::concat({both[0], both[0]}), {36});
        const Tensor again = network.forward({ops::add({x, x})}, {.training = true});
        return ops::add({ops::mean(odd(both[0], both[1], again, y)),
                         ops::mean(ops::multiply({changed, changed}))});
      },
      network);
  const ShardLoss loss = [&](Shard& shard) {
    const auto both = shard.forward_all({shard[0]}, {.outputs = outputs});
    const Tensor again = shard.forward(ops::add({shard[0], shard[0]}));
    const Tensor changed = ops::reshape(ops::concat({both[0], both[0]}), {36});
    const Tensor zeros = Tensor::zeros(changed.shape());
    return ops::add(
        {odd(both[0], both[1], again, shard[1]), ops::mean_squared_error(changed, zeros)});
  };
  ShardGroup one(network, {.threads = 1, .shard_size = 6});
  const auto alone = sharded_value_and_gradient(loss, {x, y}, one, 1);
  EXPECT_NEAR(alone.value, whole.value, 1e-5);
  EXPECT_LT(distance(alone.gradients, whole.gradients), 1e-5);
  ShardGroup three(network, {.threads = 3, .shard_size = 6});
  const auto together = sharded_value_and_gradient(loss, {x, y}, three, 1);
  EXPECT_EQ(together.value, alone.value);
  EXPECT_EQ(distance(together.gradients, alone.gradients), 0);
}

// One tensor passes the network twice. The second run has a gradient through its input.
TEST(ShardedValueAndGradient, GradientsPassThroughInputs) {
  Network network({image_input({.height = 4, .width = 4, .channels = 2, .normalization = "none"}),
                   convolution2d({.filters = 2, .kernel = {3, 3}, .padding = same_padding}),
                   tanh()});
  network.initialize(1);
  const Tensor x = random_tensor({9, 2, 4, 4}, 4), zeros = Tensor::zeros(x.shape());
  const auto whole = value_and_gradient(
      [&] {
        return ops::mean(ops::mean_squared_error(network.forward({network.forward({x})}), zeros));
      },
      network);
  ShardGroup group(network, {.threads = 2, .shard_size = 4});
  const auto sharded = sharded_value_and_gradient(
      [](Shard& shard) {
        return ops::mean_squared_error(shard.forward(shard.forward(shard[0])), shard[1]);
      },
      {x, zeros}, group, 1);
  EXPECT_NEAR(sharded.value, whole.value, 1e-6);
  EXPECT_LT(distance(sharded.gradients, whole.gradients), 1e-5);
}

// Two branches that share a layer, and a third one that the loss does not use.
TEST(ShardedValueAndGradient, AddsTheGradientsOfBranches) {
  Network network;
  network.add(feature_input({.features = 3, .normalization = "none"}), "x");
  const std::string hidden = network.add(fully_connected({.units = 5}), "hidden");
  network.add(fully_connected({.units = 2}), "first", {hidden});
  network.add(fully_connected({.units = 2}), "second", {hidden});
  network.add(fully_connected({.units = 4}), "third", {hidden});
  network.initialize(3);
  const Tensor x = random_tensor({12, 3}, 1);
  const auto of = [](const Tensor& first, const Tensor& second) {
    return ops::sum(ops::square(first) * 2 + second, {1});
  };
  const auto loss = [&](Shard& shard) {
    const Tensor first = shard.forward(shard[0], {.outputs = {"first"}});
    return of(first, shard.forward(shard[0], {.outputs = {"second"}}));
  };
  const auto expected = value_and_gradient(
      [&] {
        const auto out = network.forward_all({x}, {.outputs = {"first", "second"}});
        return ops::mean(of(out[0], out[1]));
      },
      network);
  ShardGroup group(network, {.threads = 2, .shard_size = 4});
  for (int64_t iteration = 1; iteration <= 2; ++iteration) {
    const auto result = sharded_value_and_gradient(loss, {x}, group, iteration);
    EXPECT_NEAR(result.value, expected.value, 1e-6);
    EXPECT_LE(distance(result.gradients, expected.gradients), 1e-6);
    for (size_t p = 6; p < 8; ++p) {  // of the third branch
      const auto gradient = result.gradients[p].to_vector();
      EXPECT_EQ(gradient, std::vector<float>(gradient.size(), 0)) << p;
    }
  }
}

// The network's slope at each observation is part of the loss, as in a gradient penalty.
TEST(ShardedValueAndGradient, DifferentiatesGradients) {
  Network network({image_input({.height = 4, .width = 4, .channels = 2, .normalization = "none"}),
                   convolution2d({.filters = 2, .kernel = {3, 3}, .padding = same_padding}),
                   tanh()});
  network.initialize(1);
  const Tensor x = random_tensor({9, 2, 4, 4}, 4);
  const auto loss = [](const Tensor& rows, const auto& forward) {
    Tape tape;
    tape.watch(rows);
    const Tensor slope = tape.gradient(ops::sum(forward(rows)), {rows})[0];
    return ops::mean_squared_error(forward(rows), slope);
  };
  const auto sharded = [&](int threads) {
    ShardGroup group(network, {.threads = threads, .shard_size = 4});
    return sharded_value_and_gradient(
        [&](Shard& shard) {
          return loss(shard[0], [&](const Tensor& rows) { return shard.forward(rows); });
        },
        {x}, group, 1);
  };
  const auto one = sharded(1);
  const auto whole = value_and_gradient(
      [&] {
        return ops::mean(loss(x, [&](const Tensor& rows) { return network.forward({rows}); }));
      },
      network);
  EXPECT_NEAR(one.value, whole.value, 1e-6);
  EXPECT_LT(distance(one.gradients, whole.gradients), 1e-5);
  const auto several = sharded(5);
  EXPECT_EQ(several.value, one.value);
  EXPECT_EQ(distance(several.gradients, one.gradients), 0);
  // Beside differences of the value along the gradient itself.
  double squares = 0;
  for (const Tensor& gradient : one.gradients) {
    for (const float g : gradient.to_vector()) squares += static_cast<double>(g) * g;
  }
  const auto moved_by = [&](float step) {
    for (size_t p = 0; p < one.gradients.size(); ++p) {
      const Tensor& value = network.parameters()[p].value;
      const std::vector<float> g = one.gradients[p].to_vector();
      for (size_t i = 0; i < g.size(); ++i) value.data<float>()[i] += step * g[i];
    }
  };
  constexpr float h = 1e-2f;
  moved_by(h);
  const double above = sharded(1).value;
  moved_by(-2 * h);
  const double below = sharded(1).value;
  EXPECT_NEAR((above - below) / (2 * h), squares, 1e-2 * squares);
}

// All threads compute predictions of another network and of this one at once.
TEST(ShardedValueAndGradient, LearnsFromAnotherNetwork) {
  Network teacher = tiny_network();
  teacher.initialize(9);
  const Tensor x = random_tensor({40, 2, 5, 4}, 4);
  const auto trained = [&](int threads) {
    Network network = tiny_network();
    ShardGroup group(network, {.threads = threads, .shard_size = 3});
    SgdmState state;
    for (int64_t iteration = 1; iteration <= 5; ++iteration) {
      const auto step = sharded_value_and_gradient(
          [&](Shard& shard) {
            const Tensor scores = shard.forward(shard[0]);
            return ops::add({ops::mean_squared_error(scores, teacher.predict(shard[0])),
                             ops::mean_squared_error(scores, network.predict(shard[0]))});
          },
          {x}, group, iteration);
      sgdm_update(network, step.gradients, state, {.learning_rate = 0.1});
    }
    return network_digest(network);
  };
  const Digest one = trained(1);
  EXPECT_EQ(trained(3), one);
  EXPECT_EQ(trained(5), one);
}

TEST(ShardedValueAndGradient, TakesALossAcrossObservationsOfOneShard) {
  Network network = plain_network();
  const Tensor x = random_tensor({20, 2, 5, 4}, 4), y = labels(20, 4);
  const ShardLoss mean = [](Shard& shard) { return ops::mean(loss_of(shard)); };
  ShardGroup group(network, {.threads = 2, .shard_size = 20});
  const auto across = sharded_value_and_gradient(mean, {x, y}, group, 1);
  const auto each = sharded_value_and_gradient(loss_of, {x, y}, group, 1);
  EXPECT_NEAR(across.value, each.value, 1e-6);
  EXPECT_LT(distance(across.gradients, each.gradients), 1e-6);
  ShardGroup cut(network, {.threads = 2, .shard_size = 7});
  expect_contains(error_of([&] {
                    sharded_value_and_gradient(mean, {x, y}, cut, 1);
                  }),
                  "losses across observations are accepted only if the mini-batch is one shard");
}

TEST(ShardedValueAndGradient, NamesWhatIsWrong) {
  Network network = tiny_network();
  const Tensor x = random_tensor({20, 2, 5, 4}, 4), y = labels(20, 4);
  ShardGroup group(network, {.threads = 2, .shard_size = 7});
  const auto error = [&](const ShardLoss& loss, const std::vector<Tensor>& batch,
                         int64_t iteration = 1) {
    return error_of([&] { sharded_value_and_gradient(loss, batch, group, iteration); });
  };
  const Digest before = network_digest(network);
  expect_contains(error([](Shard& shard) { return shard.forward(shard[0]); }, {x, y}),
                  "expected a loss of 7 values, one f32 for each observation of the shard");
  expect_contains(error([](Shard&) { return Tensor(); }, {x, y}), "an undefined tensor");
  expect_contains(error([](Shard& shard) { return Tensor::full({shard.size()}, 1); }, {x, y}),
                  "does not depend on the network");
  expect_contains(error([](Shard& shard) { return shard.forward(shard[2]); }, {x, y}),
                  "the mini-batch has 2 tensors, but number 2 is requested");
  expect_contains(error(loss_of, {x, labels(19, 4)}), "tensor 1 of the mini-batch must have");
  expect_contains(error(loss_of, {}), "no tensors");
  expect_contains(error(loss_of, {x, y}, 0), "iterations count from 1, received 0");
  expect_contains(
      error([](Shard& shard) { return shard.forward(shard[0], {.outputs = {"score"}}); }, {x, y}),
      "no layer `score`");
  // NaN in one observation is named with any partition, and no value has changed.
  const Tensor spoilt = x.clone();
  spoilt.data<float>()[13 * 40 + 5] = std::numeric_limits<float>::quiet_NaN();
  const ShardLoss plain = [](Shard& shard) { return ops::mean_squared_error(shard[0], shard[0]); };
  const std::string text = error(
      [&](Shard& shard) {
        return ops::add({loss_of(shard), plain(shard)});
      },
      {spoilt, y}, 4);
  // Batch normalization spreads it over the shard: rows 7 to 13.
  expect_contains(text, "observations 7 to 13 of the mini-batch is nan in iteration 4");
  EXPECT_EQ(network_digest(network), before);
  expect_contains(error_of([&] { ShardGroup(network, {.threads = -1}); }), "received -1 and 0");
  Network raw(
      {feature_input({.features = 3, .normalization = "none"}), fully_connected({.units = 2})});
  expect_contains(error_of([&] { ShardGroup{raw}; }), "not initialized");
}

// Members with different mini-batches get an error, and nothing is added.
TEST(ShardedValueAndGradient, MembersMustCallAlike) {
  Pool pool({.workers = 2, .threads = true});
  const auto texts = spmd(pool, [](Spmd& block) {
    Network network = testing::law_network();
    ShardGroup group(network, {.threads = 1}, block.group());
    const int64_t n = block.index() == 0 ? 40 : 24;
    const Tensor x = Tensor::zeros({n, 1, 28, 28});
    const std::vector<int32_t> classes(static_cast<size_t>(n), 1);
    const Tensor labels = Tensor::from(std::span(classes), {n});
    try {
      sharded_value_and_gradient(
          [](Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); },
          {x, labels}, group, 1);
    } catch (const InvalidArgument& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  });
  EXPECT_NE(texts[0].find("member 1 of the group calls for iteration 1 with 24 observations"),
            std::string::npos)
      << texts[0];
  EXPECT_NE(texts[1].find("member 0 of the group calls"), std::string::npos) << texts[1];
}

TEST(ShardedValueAndGradient, FollowsChangesOfTheNetwork) {
  Network network = tiny_network();
  const Tensor x = random_tensor({20, 2, 5, 4}, 4), y = labels(20, 4);
  ShardGroup group(network, {.threads = 2, .shard_size = 7});
  const double first = sharded_value_and_gradient(loss_of, {x, y}, group, 1).value;
  network.initialize(8);
  const double other = sharded_value_and_gradient(loss_of, {x, y}, group, 1).value;
  EXPECT_NE(first, other);
  network.initialize(3);
  EXPECT_EQ(sharded_value_and_gradient(loss_of, {x, y}, group, 1).value, first);
}

TEST(ShardedValueAndGradient, ThrowsWhatOtherWorkThrows) {
  Network network = tiny_network();
  const Tensor x = random_tensor({20, 2, 5, 4}, 4), y = labels(20, 4);
  ShardGroup group(network, {.threads = 2, .shard_size = 7});
  const auto value = [&] { return sharded_value_and_gradient(loss_of, {x, y}, group, 1).value; };
  const double alone = value();
  group.work_meanwhile([](bool) -> bool { throw DataError("the image is damaged"); });
  expect_contains(error_of([&] { value(); }), "the image is damaged");
  std::atomic<int> left = 5;
  group.work_meanwhile([&](bool) { return --left > 0; });
  EXPECT_EQ(value(), alone);
  EXPECT_LE(left, 0);
  group.work_meanwhile({});
  EXPECT_EQ(value(), alone);
}

TEST(ShardedValueAndGradient, ThrowsWhatALossThrowsWhileOthersWorkMeanwhile) {
  Network network = tiny_network();
  const Tensor x = random_tensor({20, 2, 5, 4}, 4), y = labels(20, 4);
  ShardGroup group(network, {.threads = 3, .shard_size = 7});
  group.work_meanwhile([](bool ahead) { return ahead; });  // while a thread has a shard
  const auto failing = [](Shard& shard) -> Tensor {
    if (shard.first() > 0) throw DataError("no such label");
    return loss_of(shard);
  };
  expect_contains(error_of([&] {
                    sharded_value_and_gradient(failing, {x, y}, group, 1);
                  }),
                  "no such label");
  EXPECT_GT(sharded_value_and_gradient(loss_of, {x, y}, group, 1).value, 0);
}

// Other members wait for this member's sums, so it must not do work for its next call meanwhile.
TEST(ShardedValueAndGradient, MembersDoOtherWorkOnlyWhileTheyHaveShards) {
  Pool pool({.workers = 2, .threads = true});
  const auto waited = spmd(pool, [](Spmd& block) {
    Network network = testing::law_network();
    ShardGroup group(network, {.threads = 2}, block.group());
    const Tensor x = Tensor::zeros({40, 1, 28, 28});
    const std::vector<int32_t> classes(40, 1);
    const Tensor y = Tensor::from(std::span(classes), {40});
    std::atomic<int> with_nobody_busy = 0;
    group.work_meanwhile([&](bool ahead) {
      if (!ahead) ++with_nobody_busy;
      return ahead;
    });
    const auto call = [&] {
      sharded_value_and_gradient(
          [](Shard& shard) { return ops::cross_entropy(shard.forward(shard[0]), shard[1]); },
          {x, y}, group, 1);
    };
    for (int i = 0; i < 3; ++i) call();
    return with_nobody_busy.load();
  });
  EXPECT_EQ(waited[0], 0);
  EXPECT_EQ(waited[1], 0);
}

// Threads divide large gradients into ranges.
TEST(ShardedValueAndGradient, OfLargeParametersByAnyThreads) {
  const Tensor x = random_tensor({40, 100}, 4), y = labels(40, 401);
  const auto gradients_by = [&](int threads) {
    Network network({feature_input({.features = 100, .normalization = "none"}),
                     fully_connected({.units = 401})});
    network.initialize(3);
    ShardGroup group(network, {.threads = threads, .shard_size = 2});
    std::vector<std::vector<float>> values;
    for (const Tensor& g : sharded_value_and_gradient(loss_of, {x, y}, group, 1).gradients) {
      values.push_back(g.to_vector());
    }
    return values;
  };
  const auto one = gradients_by(1);
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(one[0].size(), 40'100u);
  EXPECT_EQ(gradients_by(3), one);
}

TEST(Updates, NameWhatIsWrong) {
  Network network = plain_network();
  std::vector<Tensor> gradients;
  for (const auto& l : network.parameters()) gradients.push_back(Tensor::zeros(l.value.shape()));
  SgdmState state;
  AdamState adam;
  const std::vector<Tensor> few(gradients.begin(), gradients.end() - 1);
  expect_contains(error_of([&] { sgdm_update(network, few, state); }),
                  "[sgdm] 4 parameters need as many gradients, received 3");
  std::vector<Tensor> wrong = gradients;
  wrong[2] = Tensor::zeros({3});
  expect_contains(error_of([&] { adamw_update(network, wrong, adam); }),
                  "[adamw] the gradient of scores.weights must be");
  state.velocity = {Tensor::zeros({3})};
  expect_contains(error_of([&] { sgdm_update(network, gradients, state); }),
                  "the state is of 1 parameters");
}

}  // namespace
}  // namespace lockstep
