#include "lockstep/train/loop/population_statistics.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/state/receipt.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

struct NamedLayer {
  const char* name;
  LayerPtr layer;
};

std::vector<NamedLayer> two_normalizations() {
  return {{"in", image_input({.height = 28, .width = 28, .channels = 1})},
          {"conv1", convolution2d({.filters = 5, .kernel = {5, 5}, .stride = {2, 2}})},
          {"norm1", batch_normalization()},
          {"relu1", relu()},
          {"drop", dropout({.probability = 0.3})},
          {"conv2", convolution2d({.filters = 9, .kernel = {3, 3}, .stride = {2, 2}})},
          {"norm2", batch_normalization()},
          {"relu2", relu()},
          {"out", fully_connected({.units = 10})},
          {"norm3", batch_normalization({.epsilon = 0.1})},
          {"soft", softmax()}};
}

// The layers before `end`.
Network network_of(const std::vector<NamedLayer>& layers, const std::string& end = "") {
  Network network;
  for (const NamedLayer& l : layers) {
    if (l.name == end) break;
    network.add(l.layer, l.name);
  }
  network.initialize(1);
  return network;
}

void copy_known_values(const Network& from, const Network& to) {
  for (const auto& l : to.parameters()) l.value.copy_from(from.parameter(l.name));
  for (const auto& s : to.state()) s.value.copy_from(from.state_value(s.name));
}

Tensor pixels_of(const DatastorePtr& images) {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < images->size(); ++i) {
    const auto planes = to_planes(read_image(*images, i));
    pixels.insert(pixels.end(), planes.begin(), planes.end());
  }
  return Tensor::from(pixels, {images->size(), 1, 28, 28});
}

struct Expected {
  std::vector<double> mean, variance;
};

// Moments over all activations of several tensors, in double.
Expected moments_of(const std::vector<Tensor>& tensors) {
  const auto channels = static_cast<size_t>(tensors[0].shape()[1]);
  Expected e{std::vector<double>(channels), std::vector<double>(channels)};
  for (const bool second : {false, true}) {
    double count = 0;
    std::vector<double> sums(channels);
    for (const Tensor& t : tensors) {
      const auto values = t.to_vector();
      const auto n = static_cast<size_t>(t.shape()[0]), space = values.size() / n / channels;
      count += static_cast<double>(n * space);
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t c = i / space % channels;
        const double d = static_cast<double>(values[i]) - e.mean[c];
        sums[c] += second ? d * d : d;
      }
    }
    for (size_t c = 0; c < channels; ++c) (second ? e.variance : e.mean)[c] = sums[c] / count;
  }
  return e;
}

void expect_statistics(const Network& network, const std::string& layer, const Expected& e) {
  const auto mean = network.state_value(layer + ".mean").to_vector(),
             variance = network.state_value(layer + ".variance").to_vector();
  ASSERT_EQ(mean.size(), e.mean.size());
  for (size_t c = 0; c < mean.size(); ++c) {
    EXPECT_NEAR(mean[c], e.mean[c], 2e-6 * std::sqrt(e.variance[c])) << layer << " " << c;
    EXPECT_NEAR(variance[c], e.variance[c], 4e-6 * e.variance[c]) << layer << " " << c;
  }
}

TrainingOptions population_options(int64_t threads = 2) {
  TrainingOptions options = small_options();
  options.batch_normalization_statistics = BatchNormalizationStatistics::population;
  options.threads = threads;
  return options;
}

// 61 observations: nine shards of different sizes. Observations that do not fill a mini-batch of 20
// count, too.
TrainingData digits() {
  TrainingData data{.training = some_digits(61), .validation = some_digits(20, 100)};
  data.augmentation.translate_x = {-3, 3};
  data.augmentation.reflect_x = true;
  return data;
}

TEST(PopulationStatistics, AreThoseOfAllActivationsLayerByLayer) {
  const auto layers = two_normalizations();
  Network network = network_of(layers);
  TrainingOptions options = population_options();
  options.freeze = {"norm1", "conv2"};
  const TrainingResult result = train(network, digits(), options);
  ASSERT_TRUE(result.population);
  EXPECT_EQ(result.population->layers, 3);
  EXPECT_EQ(result.population->passes, 3);
  const Tensor pixels = pixels_of(digits().training);
  for (const char* layer : {"norm1", "norm2", "norm3"}) {
    Network before = network_of(layers, layer);
    copy_known_values(network, before);
    expect_statistics(network, layer, moments_of({before.predict(pixels)}));
  }
  // The parameters are those of the same training without population statistics.
  Network moving = network_of(layers);
  options.batch_normalization_statistics = BatchNormalizationStatistics::moving;
  const TrainingResult other = train(moving, digits(), options);
  EXPECT_EQ(other.digest, result.digest);
  EXPECT_NE(other.network_digest, result.network_digest);
  EXPECT_FALSE(other.population);
  for (const auto& l : network.parameters()) {
    EXPECT_EQ(l.value.to_vector(), moving.parameter(l.name).to_vector());
  }
}

struct StatisticsOutcome {
  TrainingResult result;
  std::string receipt;
};

StatisticsOutcome run(const std::string& folder, const TrainingOptions& options,
                      TrainingControl control = {}) {
  Network network = network_of(two_normalizations());
  ReceiptWriter receipt(local_files(), folder);
  control.checkpoint_folder = join_path(folder, "checkpoints");
  control.observers.push_back(&receipt);
  StatisticsOutcome outcome{train(network, digits(), options, control), {}};
  receipt.finish();
  outcome.receipt = read_text(local_files(), join_path(folder, "receipt.jsonl"));
  return outcome;
}

TEST(PopulationStatistics, OneNetworkForThreadsMemoryStopsAndResumes) {
  const TemporaryFolder folder;
  const auto in = [&](const std::string& name) { return join_path(folder.path, name); };
  const auto options_of = [](int64_t threads) {
    TrainingOptions options = population_options(threads);
    options.shards.size = 3;  // with three shards the last one nearly always arrives last
    return options;
  };
  const StatisticsOutcome one = run(in("one"), options_of(1));
  {
    const testing::TemporaryFolder damaged;
    const std::string path = join_path(damaged.path, "receipt.jsonl");
    write_atomically(local_files(), path, one.receipt);
    const Receipt read = read_whole_receipt(local_files(), path);
    ASSERT_TRUE(read.population);
    EXPECT_EQ(read.population->chain, one.result.population->chain);
    const auto refused = [&](const std::string& text) {
      write_atomically(local_files(), path, text);
      EXPECT_THROW(read_whole_receipt(local_files(), path), DataError) << text;
    };
    refused(one.receipt + "{}\n");
    refused(one.receipt + one.receipt);
    const size_t at = one.receipt.rfind("\"digest\":\"") + 10;
    std::string changed = one.receipt;
    changed[at] = changed[at] == '0' ? '1' : '0';
    refused(changed);
  }
  EXPECT_NE(one.receipt.find(R"({"phase":"population statistics","iteration":6,)"),
            std::string::npos)
      << one.receipt;
  EXPECT_NE(one.receipt.find(one.result.network_digest.to_string()), std::string::npos);
  for (const int64_t threads : {2, 5}) {
    TrainingOptions options = options_of(threads);
    options.data.cache_mib = 0;
    const StatisticsOutcome many = run(in("threads" + std::to_string(threads)), options);
    EXPECT_EQ(many.result.network_digest, one.result.network_digest);
    EXPECT_EQ(many.receipt, one.receipt);
  }
  // Stopped during training, or in the phase itself (the seventh call of `stop`), and resumed after
  // the end.
  for (const int64_t asked : {2, 7, 8, 100}) {
    const std::string name = in("stop" + std::to_string(asked));
    int64_t calls = 0;
    const StatisticsOutcome first =
        run(name, options_of(3), {.stop = [&] { return ++calls == asked; }});
    EXPECT_EQ(first.result.stopped, asked < 100);
    if (first.result.stopped) {
      EXPECT_FALSE(first.result.population);
    }
    const StatisticsOutcome second = run(name, options_of(2), {.resume = true});
    EXPECT_FALSE(second.result.stopped);
    EXPECT_LT(second.result.iterations.size(), 6u) << "it has begun anew";
    EXPECT_EQ(second.result.network_digest, one.result.network_digest);
    EXPECT_EQ(second.result.population->chain, one.result.population->chain);
    EXPECT_EQ(second.receipt, one.receipt) << "stopped when asked for the " << asked << ". time";
  }
}

TEST(PopulationStatistics, OfTheBestNetwork) {
  TrainingOptions options = population_options();
  options.validation.output_network = OutputNetwork::best;
  options.validation.frequency = 1;
  options.solver.initial_learning_rate = 0.3;
  Network network = network_of(two_normalizations());
  const TrainingResult result = train(network, digits(), options);
  EXPECT_EQ(result.population->iteration, result.network_iteration);
  const Tensor pixels = pixels_of(digits().training);
  Network before = network_of(two_normalizations(), "norm2");
  copy_known_values(network, before);
  expect_statistics(network, "norm2", moments_of({before.predict(pixels)}));
}

TEST(PopulationStatistics, ImagesToBeCutAtRandomCountWithTheirCenter) {
  const DatastorePtr large = resized(some_digits(61), 33, 30);
  TrainingData data{large, nullptr};
  data.random_crop = true;
  Network network = network_of(two_normalizations());
  train(network, data, population_options());
  Network before = network_of(two_normalizations(), "norm1");
  copy_known_values(network, before);
  expect_statistics(network, "norm1",
                    moments_of({before.predict(pixels_of(center_cropped(large, 28, 28)))}));
}

TEST(PopulationStatistics, ADeviceGivesTheSame) {
  const devicetest::FakeDevice fake;
  const auto with = [](const std::string& device) {
    TrainingOptions options = population_options();
    options.device = device;
    Network network = network_of(two_normalizations());
    TrainingData data = digits();
    data.noise.salt_and_pepper = 0.05;
    return train(network, data, options).network_digest;
  };
  EXPECT_EQ(with("cuda:0"), with("cpu"));
  EXPECT_TRUE(fake.misuse().empty()) << fake.misuse().front();
}

TEST(PopulationStatistics, ASharedLayerTakesAllItsPlaces) {
  Network network;
  network.add(image_input({.height = 28, .width = 28, .channels = 1}), "in");
  network.add(convolution2d({.filters = 4, .kernel = {3, 3}}), "a", {"in"});
  network.add(convolution2d({.filters = 4, .kernel = {5, 5}, .stride = {2, 2}}), "b", {"in"});
  network.add(batch_normalization(), "norm", {"a"});
  network.add_shared("norm", "again", {"b"});
  network.add(fully_connected({.units = 10}), "x", {"norm"});
  network.add(fully_connected({.units = 10}), "y", {"again"});
  network.add(addition(), "sum", {"x", "y"});
  network.add(softmax());
  network.initialize(1);
  const TrainingData data{some_digits(61), nullptr};
  const TrainingResult result = train(network, data, population_options());
  EXPECT_EQ(result.population->layers, 1);
  EXPECT_EQ(result.population->passes, 1);
  std::vector<Tensor> seen;
  for (const char* name : {"a", "b"}) {
    Network part;
    part.add(image_input({.height = 28, .width = 28, .channels = 1}), "in");
    part.add(name[0] == 'a' ? convolution2d({.filters = 4, .kernel = {3, 3}})
                            : convolution2d({.filters = 4, .kernel = {5, 5}, .stride = {2, 2}}),
             name);
    part.initialize(1);
    copy_known_values(network, part);
    seen.push_back(part.predict(pixels_of(data.training)));
  }
  expect_statistics(network, "norm", moments_of(seen));
}

TEST(PopulationStatistics, OfALayerBehindItselfAreRefused) {
  Network network;
  network.add(image_input({.height = 28, .width = 28, .channels = 1}), "in");
  network.add(convolution2d({.filters = 4, .kernel = {3, 3}}), "a");
  network.add(batch_normalization(), "norm");
  network.add(relu());
  network.add_shared("norm", "again");
  network.add(fully_connected({.units = 10}));
  network.add(softmax());
  network.initialize(1);
  try {
    train(network, {some_digits(60), nullptr}, population_options());
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("`norm`"), std::string::npos) << error.what();
  }
}

TEST(PopulationStatistics, WithoutNormalizationThereIsNoWork) {
  Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                  fully_connected({.units = 10}), softmax()};
  network.initialize(1);
  const TrainingResult result = train(network, {some_digits(60), nullptr}, population_options());
  EXPECT_FALSE(result.population);
  EXPECT_FALSE(result.stopped);
}

TEST(PopulationStatistics, AnErrorLeavesTheNetworkAsItWas) {
  Network network{image_input({.height = 6, .width = 5, .channels = 1}), batch_normalization(),
                  fully_connected({.units = 3}), batch_normalization(), softmax()};
  network.initialize(1);
  auto store = std::make_shared<testing::MemoryStore>(40, 6, 5, 1);
  const auto images = cache_for(network, store, 0);
  std::atomic<int> reads = 0;  // by both threads
  store->on_read = [&](int64_t) {
    if (++reads > 60) throw DataError("[test] gone");
  };
  ThreadPool pool(2);
  EXPECT_THROW(set_population_statistics(network, *images, pool, {}), DataError);
  EXPECT_FALSE(network.state().empty());
  for (const auto& s : network.state()) {
    const bool ones = s.name.ends_with(".variance") || s.name.ends_with(".factor");
    for (float v : s.value.to_vector()) EXPECT_EQ(v, ones ? 1 : 0) << s.name;
  }
}

TEST(PopulationStatistics, StatisticsThatAreMovingOnesStayAndNormalizeInTraining) {
  const auto trained = [](const std::string& statistics, BatchNormalizationStatistics afterwards) {
    Network network;
    network.add(image_input({.height = 28, .width = 28, .channels = 1}), "in");
    network.add(convolution2d({.filters = 5, .kernel = {5, 5}, .stride = {2, 2}}), "conv");
    network.add(batch_normalization({.statistics = statistics}), "norm");
    network.add(relu(), "relu");
    network.add(fully_connected({.units = 10}), "out");
    network.add(softmax(), "soft");
    network.initialize(1);
    for (const auto& state : network.state()) {
      if (!state.name.starts_with("norm.")) continue;
      state.value.copy_from(Tensor::full(state.value.shape(), 3));
    }
    TrainingOptions options = small_options();
    options.freeze = {"norm"};
    options.batch_normalization_statistics = afterwards;
    const auto result = train(network, {some_digits(60)}, options);
    return std::pair(network.state_value("norm.mean").to_vector(), result.iterations.front().loss);
  };
  const std::vector<float> kept(5, 3);
  const auto moving = trained("moving", BatchNormalizationStatistics::moving),
             batch = trained("batch", BatchNormalizationStatistics::moving);
  EXPECT_EQ(moving.first, kept);
  EXPECT_NE(batch.first, kept);
  EXPECT_NE(moving.second, batch.second);
  // The phase after the training leaves them, too.
  EXPECT_EQ(trained("moving", BatchNormalizationStatistics::population).first, kept);
  EXPECT_NE(trained("batch", BatchNormalizationStatistics::population).first, kept);
}

}  // namespace
}  // namespace lockstep
