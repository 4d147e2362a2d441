// Whole networks on a stand-in for a device. The bits are the CPU's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using devicetest::FakeDevice;

LayerPtr convolution(int64_t filters) {
  return convolution2d({.filters = filters, .kernel = {3, 3}, .padding = same_padding});
}

// Two branches that join, shared weights, dropout, moving statistics, two outputs.
Network make_network() {
  Network network;
  network.add(image_input({.height = 8, .width = 8, .channels = 3, .normalization = "none"}),
              "images");
  network.add(convolution(16), "stem");
  network.add(batch_normalization({.momentum = 0.25}), "norm");
  network.add(relu(), "active");
  network.add(convolution(16), "shared");
  network.add_shared("shared", "again");
  network.add(dropout({.probability = 0.25}), "dropped");
  network.add(addition(), "sum", {"dropped", "active"});
  network.add(max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}), "pool");
  network.add(concatenation(), "both", {"pool", "pool"});
  network.add(fully_connected({.units = 10}), "scores");
  network.add(softmax(), "probabilities");
  network.add(global_average_pooling2d(), "means", {"both"});
  network.initialize(3);
  return network;
}

Tensor images(int64_t n, uint64_t seed) {
  return optest::tensor_of(optest::random_array({n, 3, 8, 8}, seed));
}

Tensor labels(int64_t n) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<int32_t>(i * 7 % 10));
  return Tensor::from(values, Shape{n});
}

// A few iterations of a custom loop. Returns all values and the outputs of prediction.
std::vector<std::vector<float>> train(Network& network) {
  const Device device = network.device();
  std::vector<std::vector<float>> results;
  for (uint64_t iteration = 0; iteration < 4; ++iteration) {
    const int64_t n = iteration == 2 ? 5 : 6;
    Tape tape;
    tape.watch(network.parameter_values());
    const Tensor x = images(n, iteration).to(device);
    const auto outputs = network.forward_all(
        {x}, {.training = true, .step = {.seed = 1, .iteration = iteration, .first_row = 0}});
    const Tensor loss = ops::sum(ops::cross_entropy(outputs[0], labels(n).to(device)));
    EXPECT_EQ(loss.device(), device);
    results.push_back(loss.to_vector());
    results.push_back(outputs[1].to_vector());
    const auto gradients = tape.gradient(loss, network.parameter_values());
    for (size_t p = 0; p < gradients.size(); ++p) {
      EXPECT_EQ(gradients[p].device(), device);
      results.push_back(gradients[p].to_vector());
      std::vector<float> value = network.parameters()[p].value.to_vector();
      for (size_t i = 0; i < value.size(); ++i) value[i] -= 0.01f * results.back()[i];
      network.parameters()[p].value.copy_from(
          Tensor::from(value, network.parameters()[p].value.shape()));
    }
  }
  for (const auto& l : network.parameters()) results.push_back(l.value.to_vector());
  for (const auto& s : network.state()) results.push_back(s.value.to_vector());
  for (const auto& t : network.forward_all({images(7, 9).to(device)}, {})) {
    results.push_back(t.to_vector());
  }
  return results;
}

TEST(DeviceNetwork, TrainsToTheBitsOfTheCpu) {
  const FakeDevice fake;
  Network here = make_network(), there = make_network();
  there.to(fake);
  EXPECT_EQ(there.device(), fake.device());
  const auto expected = train(here);
  ASSERT_FALSE(expected.empty());
  for (const auto& values : expected) {
    for (float v : values) ASSERT_TRUE(std::isfinite(v));
  }
  EXPECT_TRUE(train(there) == expected);
  EXPECT_GT(fake.replays(), 0);
}

TEST(DeviceNetwork, GradientsOfInputsAndSecondGradientsComeToo) {
  const FakeDevice fake;
  const auto gradients = [](Network& network) {
    const Tensor x = images(4, 5).to(network.device());
    Tape tape;
    tape.watch(x);
    const Tensor y = ops::sum(network.forward({x}));
    std::vector<std::vector<float>> results;
    for (int time = 0; time < 3; ++time) {
      results.push_back(tape.gradient(y, {x})[0].to_vector());
      EXPECT_EQ(results.back(), results.front());
    }
    return results;
  };
  Network here = make_network(), there = make_network();
  there.to(fake);
  EXPECT_EQ(gradients(there), gradients(here));
}

TEST(DeviceNetwork, PixelsAreNormalizedThere) {
  const FakeDevice fake;
  std::vector<uint8_t> bytes(3 * 3 * 8 * 8);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 31);
  const Tensor x = Tensor::from(bytes, {3, 3, 8, 8});
  Network network = make_network();
  const auto expected = network.predict(x).to_vector();
  network.to(fake);
  EXPECT_EQ(network.predict(x.to(fake)).to_vector(), expected);
}

TEST(DeviceNetwork, MovesBackAndIsClonedWhereItIs) {
  const FakeDevice fake;
  Network network = make_network();
  const Tensor x = images(2, 1);
  const auto expected = network.predict(x).to_vector();
  const Tensor old = network.parameters()[0].value;
  network.to(fake);
  EXPECT_EQ(old.device(), Device{});
  EXPECT_EQ(network.parameters()[0].value.device(), fake.device());
  EXPECT_EQ(network.state()[0].value.device(), fake.device());
  Network copy = network.clone();
  EXPECT_EQ(copy.device(), fake.device());
  network.parameters()[0].value.copy_from(Tensor::zeros(old.shape()));
  EXPECT_EQ(copy.predict(x.to(fake)).to_vector(), expected);
  copy.to({});
  EXPECT_EQ(copy.predict(x).to_vector(), expected);
  copy.to(fake);
  copy.initialize(3);
  EXPECT_EQ(copy.parameters()[0].value.device(), fake.device());
  EXPECT_EQ(copy.predict(x.to(fake)).to_vector(), expected);
}

TEST(DeviceNetwork, IsSavedFromThereAndLoadedHere) {
  const FakeDevice fake;
  Network network = make_network();
  const Tensor x = images(2, 1);
  const auto expected = network.predict(x).to_vector();
  network.to(fake);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("device_network_" + std::to_string(getpid())))
          .string();
  FileSystem& files = local_files();
  save_model(files, path, network, {});
  Model loaded = load_model(files, path);
  std::filesystem::remove(path);
  EXPECT_EQ(loaded.network.device(), Device{});
  EXPECT_EQ(loaded.network.predict(x).to_vector(), expected);
}

TEST(DeviceNetwork, RefusesInputsOnAnotherDevice) {
  const FakeDevice fake;
  Network network = make_network();
  network.to(fake);
  try {
    network.predict(images(2, 1));
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[network] input 1 is on cpu, but the network is on cuda:0");
    EXPECT_EQ(error.hint(), "move one of them: tensor.to(device) or network.to(device)");
  }
}

}  // namespace
}  // namespace lockstep
