// Runs of networks: forward, gradients, moving statistics, custom loops.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using optest::array_of;
using optest::relative_error;

Tensor pixels(Shape shape, uint64_t seed) {
  auto array = optest::random_array(shape.dims(), seed, 0, 256);
  for (double& v : array.values) v = std::floor(v);
  return optest::tensor_of(array);
}

Tensor labels(int64_t n, int32_t classes) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<int32_t>(i * 7 % classes));
  return Tensor::from(values, Shape{n});
}

LayerPtr convolution(int64_t filters) {
  return convolution2d({.filters = filters, .kernel = {3, 3}, .padding = same_padding});
}

Network chain() {
  Network network{image_input({.height = 8, .width = 8, .channels = 3, .normalization = "none"}),
                  convolution(16),
                  batch_normalization({.momentum = 0.25}),
                  relu(),
                  max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                  fully_connected({.units = 10}),
                  softmax()};
  network.initialize(3);
  for (float& v : std::span(network.state_value("image_input_1.offset").data<float>(), 3)) v = 128;
  for (float& v : std::span(network.state_value("image_input_1.factor").data<float>(), 3)) {
    v = 1.0f / 64;
  }
  return network;
}

// Same, with eager ops.
struct Eager {
  Tensor probabilities, mean, variance;
};
Eager eager_chain(const Network& n, const Tensor& x, bool training) {
  Tensor y = ops::normalize_images(x, n.state_value("image_input_1.offset"),
                                   n.state_value("image_input_1.factor"));
  y = ops::convolution2d(y, n.parameter("convolution2d_1.weights"),
                         n.parameter("convolution2d_1.bias"), {.padding = same_padding});
  const Tensor scale = n.parameter("batch_normalization_1.scale");
  const Tensor shift = n.parameter("batch_normalization_1.shift");
  Eager result;
  if (training) {
    const auto normalized = ops::batch_normalization_training(y, scale, shift);
    result.mean = normalized.mean;
    result.variance = normalized.variance;
    y = normalized.y;
  } else {
    y = ops::batch_normalization(y, scale, shift, n.state_value("batch_normalization_1.mean"),
                                 n.state_value("batch_normalization_1.variance"));
  }
  y = ops::max_pooling2d(ops::relu(y), {.pool = {2, 2}, .stride = {2, 2}});
  y = ops::fully_connected(y, n.parameter("fully_connected_1.weights"),
                           n.parameter("fully_connected_1.bias"));
  result.probabilities = ops::softmax(y);
  return result;
}

void expect_close(const Tensor& actual, const Tensor& expected, double floor = 0) {
  EXPECT_EQ(actual.shape(), expected.shape());
  EXPECT_LE(relative_error(array_of(actual), array_of(expected), floor), 1e-6);
}

TEST(NetworkRun, InferenceIsWhatEagerOpsGiveWithMovingStatistics) {
  Network network = chain();
  for (int64_t c = 0; c < 16; ++c) {
    network.state_value("batch_normalization_1.mean").data<float>()[c] =
        0.1f * static_cast<float>(c);
    network.state_value("batch_normalization_1.variance").data<float>()[c] =
        1 + static_cast<float>(c);
  }
  const Tensor x = pixels({5, 3, 8, 8}, 1);
  const auto before = network.state_value("batch_normalization_1.mean").to_vector();
  expect_close(network.forward({x}), eager_chain(network, x, false).probabilities);
  expect_close(network.predict(x), eager_chain(network, x, false).probabilities);
  EXPECT_EQ(network.state_value("batch_normalization_1.mean").to_vector(), before);
}

TEST(NetworkRun, TrainingUsesAndFollowsBatchStatistics) {
  Network network = chain();
  double mean[16] = {}, variance[16];
  std::fill_n(variance, 16, 1.0);
  for (uint64_t round = 0; round < 3; ++round) {
    const Tensor x = pixels({6, 3, 8, 8}, 10 + round);
    const Eager expected = eager_chain(network, x, true);
    expect_close(network.forward({x}, {.training = true}), expected.probabilities);
    const auto batch_mean = expected.mean.to_vector(), batch_var = expected.variance.to_vector();
    const auto moving_mean = network.state_value("batch_normalization_1.mean").to_vector();
    const auto moving_var = network.state_value("batch_normalization_1.variance").to_vector();
    for (size_t c = 0; c < 16; ++c) {
      mean[c] = 0.75 * mean[c] + 0.25 * static_cast<double>(batch_mean[c]);
      variance[c] = 0.75 * variance[c] + 0.25 * static_cast<double>(batch_var[c]);
      EXPECT_NEAR(static_cast<double>(moving_mean[c]), mean[c], 1e-5) << c;
      EXPECT_NEAR(static_cast<double>(moving_var[c]), variance[c], 1e-5) << c;
    }
  }
}

TEST(NetworkRun, BytesAndFloatsOfTheSamePixelsGiveTheSameBits) {
  Network network = chain();
  const Tensor x = pixels({4, 3, 8, 8}, 1);
  std::vector<uint8_t> bytes;
  for (float v : x.to_vector()) bytes.push_back(static_cast<uint8_t>(v));
  EXPECT_EQ(network.predict(Tensor::from(bytes, x.shape())).to_vector(),
            network.predict(x).to_vector());
}

TEST(NetworkRun, GradientsAreThoseOfEagerOps) {
  Network network = chain();
  const Tensor x = pixels({6, 3, 8, 8}, 1), y = labels(6, 10);
  Tape tape;
  tape.watch(network.parameter_values());
  tape.watch(x);
  const auto eager = eager_chain(network, x, true);
  const Tensor expected_loss = ops::mean(ops::cross_entropy(eager.probabilities, y));
  const Tensor loss = ops::mean(ops::cross_entropy(network.forward({x}, {.training = true}), y));
  EXPECT_NEAR(loss.item(), expected_loss.item(), 1e-6);
  auto with = network.parameter_values();
  with.push_back(x);
  const auto gradients = tape.gradient(loss, with);
  const auto expected = tape.gradient(expected_loss, with);
  for (size_t i = 0; i < with.size(); ++i) {
    const bool input = i == network.parameters().size();
    const std::string name = input ? "input" : network.parameters()[i].name;
    SCOPED_TRACE(name);
    // The gradient of a bias before a normalization is zero except for rounding.
    expect_close(gradients[i], expected[i], input ? 0 : name == "convolution2d_1.bias" ? 1 : 0.1);
  }
}

TEST(NetworkRun, GradientsMayBeRequestedTwiceAndForwardRunTwice) {
  Network network{image_input({.height = 6, .width = 6, .channels = 2, .normalization = "none"}),
                  convolution(16), dropout({.probability = 0.4}), relu(),
                  fully_connected({.units = 4})};
  network.initialize(1);
  const Tensor a = pixels({3, 2, 6, 6}, 1), b = pixels({3, 2, 6, 6}, 2);
  const auto with = network.parameter_values();
  const ForwardOptions first{.training = true, .step = {.seed = 1, .iteration = 1}};
  const ForwardOptions second{.training = true, .step = {.seed = 1, .iteration = 2}};
  const auto alone = [&](const Tensor& x, const ForwardOptions& options) {
    Tape tape;
    tape.watch(with);
    return tape.gradient(ops::sum(network.forward({x}, options)), with);
  };
  const auto of_a = alone(a, first), of_b = alone(b, second);

  Tape tape;
  tape.watch(with);
  const Tensor scalar_a = ops::sum(network.forward({a}, first));
  const Tensor scalar_b = ops::sum(network.forward({b}, second));
  const Tensor both = ops::add({scalar_a, scalar_b});
  for (int round = 0; round < 2; ++round) {
    const auto gradients = tape.gradient(both, with);
    const auto again_a = tape.gradient(scalar_a, with), again_b = tape.gradient(scalar_b, with);
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_EQ(again_a[i].to_vector(), of_a[i].to_vector()) << i;
      EXPECT_EQ(again_b[i].to_vector(), of_b[i].to_vector()) << i;
      expect_close(gradients[i], ops::add({of_a[i], of_b[i]}), 1e-3);
    }
  }
}

TEST(NetworkRun, TheTapeOfALaterLoopSeesChangedParameters) {
  Network network = chain();
  const Tensor x = pixels({4, 3, 8, 8}, 1);
  const auto run = [&] {
    Tape tape;
    tape.watch(network.parameter_values());
    return network.forward({x}).to_vector();
  };
  const auto before = run();
  network.parameter("convolution2d_1.weights").data<float>()[5] += 1;
  const auto after = run();
  EXPECT_NE(before, after);
  // Predictions are computed in batches of another size, which round differently.
  const auto predicted = network.predict(x).to_vector();
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], predicted[i], 1e-5) << i;
}

TEST(NetworkRun, ATapeOutlivesTheNetworkAndItsNextStart) {
  const Tensor x = pixels({4, 3, 8, 8}, 1);
  const auto gradients = [&](auto after) {
    std::optional<Network> network = chain();
    const auto with = network->parameter_values();
    Tape tape;
    tape.watch(with);
    const Tensor scalar = ops::mean(ops::cross_entropy(network->forward({x}), labels(4, 10)));
    after(network);
    // Overwrites memory that was released.
    std::vector<Tensor> others;
    for (int64_t n = 1; n < 20000; n += 100) others.push_back(Tensor::full({n}, 1e6f));
    std::vector<std::vector<float>> values;
    for (int round = 0; round < 2; ++round) {
      for (const auto& g : tape.gradient(scalar, with)) values.push_back(g.to_vector());
    }
    return values;
  };
  const auto expected = gradients([](auto&) {});
  EXPECT_EQ(gradients([](auto& network) { network.reset(); }), expected);
  EXPECT_EQ(gradients([](auto& network) { network->initialize(99); }), expected);
  EXPECT_EQ(gradients([](auto& network) { network->add(relu()); }), expected);
}

TEST(NetworkRun, GradientsOfParametersThatChangedSinceAreRefused) {
  Network network = chain();
  const Tensor x = pixels({4, 3, 8, 8}, 1);
  const auto with = network.parameter_values();
  Tape tape;
  tape.watch(with);
  const Tensor scalar = ops::mean(ops::cross_entropy(network.forward({x}), labels(4, 10)));
  std::vector<std::vector<float>> expected, again;
  for (const auto& g : tape.gradient(scalar, with)) expected.push_back(g.to_vector());
  float& weight = network.parameter("fully_connected_1.weights").data<float>()[3];
  const float before = weight;
  weight = before + 1;
  network.predict(x);
  EXPECT_THROW(tape.gradient(scalar, with), InvalidArgument);
  weight = before;
  for (const auto& g : tape.gradient(scalar, with)) again.push_back(g.to_vector());
  EXPECT_EQ(again, expected);
}

TEST(NetworkRun, PredictIsNotRecorded) {
  Network network = chain();
  const Tensor x = pixels({4, 3, 8, 8}, 1);
  Tape tape;
  tape.watch(network.parameter_values());
  EXPECT_FALSE(tape.tracks(std::vector<Tensor>{network.predict(x)}));
  EXPECT_TRUE(tape.tracks(std::vector<Tensor>{network.forward({x})}));
}

TEST(NetworkRun, TheCallersRoundingDoesNotReachResults) {
  const Tensor x = pixels({4, 3, 8, 8}, 1);
  const auto run = [&] {
    Network network = chain();
    Tape tape;
    tape.watch(network.parameter_values());
    const Tensor scalar =
        ops::mean(ops::cross_entropy(network.forward({x}, {.training = true}), labels(4, 10)));
    std::vector<std::vector<float>> values{network.predict(x).to_vector(),
                                           eager_chain(network, x, true).probabilities.to_vector(),
                                           network.state()[2].value.to_vector()};
    for (const auto& g : tape.gradient(scalar, network.parameter_values())) {
      values.push_back(g.to_vector());
    }
    return values;
  };
  const auto expected = run();
  const int before = std::fegetround();
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const auto upward = run();
  const int kept = std::fegetround();
  std::fesetround(before);
  EXPECT_EQ(kept, FE_UPWARD);
  EXPECT_EQ(upward, expected);
}

TEST(NetworkRun, ARecordedRunIsReusedWhenItsTapeIsDestroyed) {
  Network network = chain();
  const Tensor x = pixels({4, 3, 8, 8}, 1);
  const auto in_use = [] { return allocator_statistics().in_use; };
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    Tensor y;
    size_t alive = 0;
    {
      Tape tape;
      tape.watch(network.parameter_values());
      y = network.forward({x});
      alive = in_use();
    }
    EXPECT_EQ(in_use(), alive) << "the run waits for its next use";
    static size_t first = 0;
    if (round == 0) first = alive;
    EXPECT_EQ(alive, first);
  }
}

TEST(NetworkRun, MemoryForManyBatchSizesIsBounded) {
  Network network{image_input({.height = 16, .width = 16, .channels = 8, .normalization = "none"}),
                  relu(), flatten()};
  network.initialize(0);
  const auto used_after = [&](int64_t from, int64_t to) {
    for (int64_t n = from; n <= to; ++n) {
      network.forward({Tensor::zeros({n, 8, 16, 16})}, {.record = false});
    }
    return allocator_statistics().in_use;
  };
  used_after(21, 40);
  const size_t large = used_after(100, 120);
  EXPECT_LT(used_after(1, 16), large / 2) << "large ones made room";
}

TEST(NetworkRun, DropoutIsKeyedByTheStepAndOffInInference) {
  Network network{image_input({.height = 4, .width = 4, .channels = 1, .normalization = "none"}),
                  dropout({.probability = 0.5}), flatten()};
  network.initialize(0);
  const Tensor x = Tensor::full({4, 1, 4, 4}, 3);
  const auto run = [&](uint64_t seed, uint64_t iteration, int64_t first_row, bool training = true) {
    return network.forward({x}, {training, {seed, iteration, first_row}}).to_vector();
  };
  EXPECT_EQ(run(1, 1, 0, false), x.to_vector());
  const auto base = run(1, 1, 0);
  int dropped = 0;
  for (float v : base) {
    EXPECT_TRUE(v == 0 || v == 6) << v;
    dropped += v == 0;
  }
  EXPECT_GT(dropped, 12);
  EXPECT_LT(dropped, 52);
  EXPECT_EQ(run(1, 1, 0), base);
  EXPECT_NE(run(1, 2, 0), base);
  EXPECT_NE(run(2, 1, 0), base);
  // Rows 2 and 3 are rows 0 and 1 of a shard that begins at row 2.
  const auto shifted = run(1, 1, 2);
  EXPECT_TRUE(std::equal(base.begin() + 32, base.end(), shifted.begin()));
  // Without a step each mini-batch would lose the same elements.
  try {
    network.forward({x}, {.training = true});
    ADD_FAILURE() << "the mask of each mini-batch would be the same";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("\"dropout_1\" draws random numbers"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(network.forward({x}).to_vector(), x.to_vector());
}

TEST(NetworkRun, TwoDropoutLayersDrawDifferently) {
  Network network;
  network.add(image_input({.height = 8, .width = 8, .channels = 1, .normalization = "none"}), "in");
  network.add(dropout(), "a", {"in"});
  network.add(dropout(), "b", {"in"});
  network.initialize(0);
  const auto outputs = network.forward_all({Tensor::full({2, 1, 8, 8}, 1)},
                                           {.training = true, .step = {.iteration = 1}});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_NE(outputs[0].to_vector(), outputs[1].to_vector());
}

// x -> two outputs.
Network forked() {
  Network network;
  network.add(image_input({.height = 4, .width = 4, .channels = 2, .normalization = "none"}), "in");
  network.add(convolution(4), "stem");
  network.add(fully_connected({.units = 3}), "left", {"stem"});
  network.add(fully_connected({.units = 5}), "right", {"stem"});
  network.initialize(2);
  return network;
}

TEST(NetworkRun, AnOutputThatTheScalarLeavesOutHasNoPartInGradients) {
  Network network = forked();
  const Tensor x = pixels({3, 2, 4, 4}, 1);
  Tape tape;
  tape.watch(network.parameter_values());
  const auto outputs = network.forward_all({x}, {});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].shape(), (Shape{3, 3}));
  EXPECT_EQ(outputs[1].shape(), (Shape{3, 5}));
  const Tensor right = ops::sum(outputs[1]);
  const Tensor both = ops::add({ops::sum(outputs[0]), right});
  const auto all = tape.gradient(both, network.parameter_values());
  const auto gradients = tape.gradient(right, network.parameter_values());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const std::string& name = network.parameters()[i].name;
    SCOPED_TRACE(name);
    const auto values = gradients[i].to_vector();
    const bool zero = std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
    EXPECT_EQ(zero, name.rfind("left.", 0) == 0);
    EXPECT_EQ(values == all[i].to_vector(), name.rfind("right.", 0) == 0);
  }
}

TEST(NetworkRun, InputsThatDoNotFitAreNamed) {
  Network network = chain();
  const auto error_of = [&](const std::vector<Tensor>& inputs) -> std::string {
    try {
      network.forward(inputs);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto expect = [&](const std::vector<Tensor>& inputs, const char* word) {
    const std::string text = error_of(inputs);
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  expect({}, "takes 1 input, received 0");
  expect({pixels({2, 3, 8, 8}, 1), pixels({2, 3, 8, 8}, 1)}, "received 2");
  expect({pixels({2, 1, 8, 8}, 1)}, "2x1x8x8");
  expect({pixels({3, 8, 8}, 1)}, "3x8x8");
  expect({Tensor::zeros({0, 3, 8, 8})}, "0x3x8x8");
  expect({Tensor::zeros({2, 3, 8, 8}, DType::i32)}, "i32");
  expect({Tensor()}, "input 1");
}

// ---- A residual network with shared weights and two inputs, trained by a custom loop ----

Network siamese() {
  Network n;
  n.add(image_input({.height = 8, .width = 8, .channels = 1, .normalization = "none"}), "left");
  n.add(image_input({.height = 8, .width = 8, .channels = 1, .normalization = "none"}), "right");
  n.add(convolution(8), "stem_left", {"left"});
  n.add_shared("stem_left", "stem_right", {"right"});
  n.add(concatenation(), "both", {"stem_left", "stem_right"});
  n.add(batch_normalization(), "norm1");
  n.add(relu(), "relu1");
  n.add(convolution(16), "conv");
  n.add(batch_normalization(), "norm2");
  n.add(addition(), "sum", {"norm2", "relu1"});
  n.add(relu(), "relu2");
  n.add_shared("conv", "conv_again");
  n.add(addition(), "sum2", {"conv_again", "relu2"});
  n.add(global_average_pooling2d(), "pool");
  n.add(fully_connected({.units = 2}), "dense");
  n.add(softmax(), "soft");
  return n;
}

TEST(CustomLoop, AResidualNetworkWithSharedWeightsAndTwoInputsLearns) {
  Network network = siamese();
  ASSERT_TRUE(network.analyze().empty());
  EXPECT_EQ(network.input_shapes().size(), 2u);
  network.initialize(7);
  const auto parameters = network.parameter_values();
  // The target: whether both images are bright in the same half.
  constexpr int64_t n = 32;
  std::vector<float> left, right;
  std::vector<int32_t> same;
  const RandomStream random({.seed = 5});
  uint64_t drawn = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t a = i % 2, b = i / 2 % 2;
    same.push_back(a == b);
    for (auto [values, half] : {std::pair{&left, a}, std::pair{&right, b}}) {
      for (int64_t p = 0; p < 64; ++p) {
        const double noise = random.uniform(drawn++) - 0.5;
        values->push_back(static_cast<float>((p / 32 == half ? 1 : -1) + noise));
      }
    }
  }
  const Shape shape{n, 1, 8, 8};
  const std::vector<Tensor> inputs{Tensor::from(left, shape), Tensor::from(right, shape)};
  const Tensor targets = Tensor::from(same, Shape{n});

  std::vector<double> losses;
  std::vector<std::vector<float>> velocity(parameters.size());
  for (uint64_t iteration = 1; iteration <= 60; ++iteration) {
    Tape tape;
    tape.watch(parameters);
    const Tensor probabilities = network.forward(inputs, {true, {0, iteration, 0}});
    const Tensor loss = ops::mean(ops::cross_entropy(probabilities, targets));
    losses.push_back(static_cast<double>(loss.item()));
    const auto gradients = tape.gradient(loss, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto g = gradients[i].to_vector();
      velocity[i].resize(g.size());
      float* const w = parameters[i].data<float>();
      for (size_t k = 0; k < g.size(); ++k) {
        velocity[i][k] = 0.9f * velocity[i][k] - 0.05f * g[k];
        w[k] += velocity[i][k];
      }
    }
  }
  EXPECT_GT(losses.front(), 0.5);
  EXPECT_LT(losses.back(), 0.1 * losses.front());
}

}  // namespace
}  // namespace lockstep
