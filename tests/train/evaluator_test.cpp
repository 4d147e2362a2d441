#include "lockstep/train/evaluation/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/input/targets.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::MemoryStore;
using testing::small_classifier;
using testing::some_digits;

// Trained briefly, so that scores differ and statistics are not the initial ones.
Network trained() {
  Network network = small_classifier();
  train(network, {some_digits(60), nullptr}, testing::small_options());
  return network;
}

std::vector<std::vector<float>> rows_of(const Tensor& scores) {
  const auto values = scores.to_vector();
  const auto columns = static_cast<size_t>(scores.shape()[1]);
  std::vector<std::vector<float>> rows;
  for (size_t at = 0; at < values.size(); at += columns) {
    rows.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(at),
                      values.begin() + static_cast<std::ptrdiff_t>(at + columns));
  }
  return rows;
}

TEST(Evaluator, CountsEveryObservationOnce) {
  Network network{image_input({.height = 6, .width = 5, .channels = 1, .normalization = "none"}),
                  fully_connected({.units = 3}), softmax()};
  network.initialize(1);
  for (const int64_t n : {1, 63, 64, 65, 130}) {
    auto store = std::make_shared<MemoryStore>(n, 6, 5, 1);
    std::vector<int> reads(static_cast<size_t>(n));
    store->on_read = [&](int64_t index) { ++reads[static_cast<size_t>(index)]; };
    const Evaluation e = evaluate(network, store, {.threads = 1});
    EXPECT_EQ(e.observations, n);
    EXPECT_EQ(reads, std::vector<int>(static_cast<size_t>(n), 1)) << n;
  }
}

TEST(Evaluator, AgreesWithPlainForward) {
  Network network = trained();
  const DatastorePtr data = some_digits(150, 20);
  const Evaluation e = evaluate(network, data, {.threads = 2});
  const Tensor scores = predict(network, data, {.threads = 2});
  ASSERT_EQ(scores.shape(), (Shape{150, 10}));

  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < 150; ++i) {
    const auto planes = to_planes(read_image(*data, i));
    pixels.insert(pixels.end(), planes.begin(), planes.end());
    labels.push_back(static_cast<int32_t>(data->label(i)));
  }
  const Tensor expected = network.predict(Tensor::from(pixels, {150, 1, 28, 28}));
  const auto a = scores.to_vector(), b = expected.to_vector();
  int64_t right = 0;
  double loss = 0;
  for (size_t i = 0; i < 150; ++i) {
    for (size_t c = 0; c < 10; ++c) EXPECT_NEAR(a[10 * i + c], b[10 * i + c], 1e-5);
    const auto row = b.begin() + static_cast<std::ptrdiff_t>(10 * i);
    right += std::max_element(row, row + 10) - row == labels[i];
    loss -= std::log(static_cast<double>(row[labels[i]]));
  }
  EXPECT_EQ(e.accuracy, static_cast<double>(right) / 150);
  EXPECT_NEAR(e.loss, loss / 150, 1e-5);
  EXPECT_GT(e.accuracy, 0.1);
}

TEST(Evaluator, AScoreDependsOnItsImageAlone) {
  Network network = trained();
  constexpr int64_t n = 140;
  const DatastorePtr all = some_digits(n, 20);
  const auto expected = rows_of(predict(network, all, {.threads = 1}));
  EXPECT_EQ(rows_of(predict(network, all, {.threads = 2})), expected) << "threads";
  EXPECT_EQ(rows_of(predict(network, all, {.threads = 5})), expected) << "threads";
  // Alone, backwards, among others, at every position of a batch.
  for (const int64_t i : {0, 63, 64, 139}) {
    EXPECT_EQ(rows_of(predict(network, subset(all, {i}), {.threads = 1}))[0],
              expected[static_cast<size_t>(i)]);
  }
  for (const int64_t step : {-1, 3, 11, 57}) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < n; ++i) order.push_back(((i * step) % n + n) % n);
    const auto scores = rows_of(predict(network, subset(all, order), {.threads = 2}));
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(scores[i], expected[static_cast<size_t>(order[i])]) << "step " << step << ", " << i;
    }
  }
  // Evaluations have the same results for any number of threads.
  const Evaluation one = evaluate(network, all, {.threads = 1}),
                   three = evaluate(network, all, {.threads = 3});
  EXPECT_EQ(one.loss, three.loss);
  EXPECT_EQ(one.accuracy, three.accuracy);
}

TEST(Evaluator, SeesChangedParametersAndState) {
  Network network = trained();
  ThreadPool pool(2);
  Evaluator evaluator(
      network, Evaluator::Data{.images = cache_for(network, some_digits(30, 20), 1 << 20)}, pool);
  const double before = evaluator.run().loss;
  EXPECT_EQ(evaluator.run().loss, before);
  network.parameter("convolution2d_1.weights").data<float>()[3] += 1;
  const double after = evaluator.run().loss;
  EXPECT_NE(after, before);
  network.state_value("batch_normalization_1.mean").data<float>()[0] += 1;
  EXPECT_NE(evaluator.run().loss, after);
}

TEST(Evaluator, WithoutObservationsIsNan) {
  Network network = trained();
  const Evaluation e = evaluate(network, subset(builtin_digits(), {}), {.threads = 1});
  EXPECT_EQ(e.observations, 0);
  EXPECT_TRUE(std::isnan(e.loss));
  EXPECT_TRUE(std::isnan(e.accuracy));
  EXPECT_EQ(predict(network, subset(builtin_digits(), {}), {.threads = 1}).shape(), (Shape{0, 10}));
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "nothing was thrown";
}

TEST(Classifier, AnotherNumberOfClassesNamesTheLayerToChange) {
  Network network{image_input({.height = 28, .width = 28, .channels = 1})};
  network.add(fully_connected({.units = 30}), "hidden");
  network.add(relu());
  network.add(fully_connected({.units = 7}), "scores");
  network.add(softmax());
  network.initialize(1);
  for (const std::string& text :
       {error_of([&] {
          train(network, {some_digits(40), nullptr}, testing::small_options());
        }),
        error_of([&] { evaluate(network, some_digits(10)); })}) {
    EXPECT_NE(text.find("10 classes"), std::string::npos) << text;
    EXPECT_NE(text.find("`scores`"), std::string::npos) << text;
    EXPECT_NE(text.find("to 10"), std::string::npos) << text;
  }
}

TEST(Classifier, OtherLossesAndSeveralOutputsAreRefused) {
  const DatastorePtr data = array_datastore(ImageBlock{2, 4, 4, 1, std::vector<uint8_t>(32)},
                                            {.labels = {0, 1}, .classes = {"a", "b"}});
  Network network;
  network.add(image_input({.height = 4, .width = 4, .channels = 1}), "in");
  network.add(fully_connected({.units = 2}), "x", {"in"});
  EXPECT_EQ(error_of([&] { check_fits(network, *data, nullptr); }), "nothing was thrown");
  network.set_loss("mean_squared_error");
  EXPECT_NE(error_of([&] { check_fits(network, *data, nullptr); }).find("mean_squared_error"),
            std::string::npos);
  network.set_loss("cross_entropy");
  network.add(fully_connected({.units = 2}), "y", {"in"});
  EXPECT_NE(error_of([&] { check_fits(network, *data, nullptr); }).find("one output"),
            std::string::npos);
  network.add(image_input({.height = 4, .width = 4, .channels = 1}), "second");
  EXPECT_NE(error_of([&] {
              cache_for(network, some_digits(3), 0);
            }).find("one image input, but its inputs are 1x4x4, 1x4x4"),
            std::string::npos);
  Network features{feature_input({.features = 16}), fully_connected({.units = 10}), softmax()};
  EXPECT_NE(error_of([&] {
              cache_for(features, some_digits(3), 0);
            }).find("one image input, but its inputs are 16"),
            std::string::npos);
  Network sequences{sequence_input({.channels = 2, .length = 8}), fully_connected({.units = 10}),
                    softmax()};
  EXPECT_NE(error_of([&] {
              cache_for(sequences, some_digits(3), 0);
            }).find("one image input, but its inputs are 2x8"),
            std::string::npos);
}

// A network that was trained by an own loss: its outputs fit neither labels nor the network's loss.
TEST(Predict, GivesOutputsThatFitNoLoss) {
  const auto segmentation = [](const char* type) {
    Network network{image_input({.height = 6, .width = 5, .channels = 1, .normalization = "none"}),
                    convolution2d({.filters = 4, .kernel = {3, 3}, .padding = same_padding})};
    if (std::string(type) == "softmax") network.add(softmax());
    network.initialize(1);
    return network;
  };
  for (const char* loss : {"cross_entropy", "mean_squared_error"}) {
    for (const char* type : {"softmax", "logits"}) {
      Network network = segmentation(type);
      network.set_loss(loss);
      const auto store = std::make_shared<MemoryStore>(70, 6, 5, 1);
      const Tensor outputs = predict(network, store, {.threads = 2});
      ASSERT_EQ(outputs.shape(), (Shape{70, 4, 6, 5})) << loss;
      std::vector<uint8_t> pixels;
      for (int64_t i = 0; i < 70; ++i) {
        const Image image = read_image(*store, i);
        pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
      }
      const Tensor plain = network.predict(Tensor::from(pixels, {70, 1, 6, 5}));
      const auto a = outputs.to_vector(), b = plain.to_vector();
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4f) << loss << type;
    }
  }
}

// Labels and the loss change no bit of the outputs.
TEST(Predict, HasTheBitsOfAnEvaluation) {
  Network network = trained();
  const DatastorePtr data = some_digits(150, 20);
  ThreadPool pool(2);
  const auto cache = std::make_shared<const ExampleCache>(data, 28, 28, 1, 0);
  Tensor compared;
  const Evaluation e = Evaluator(network, {.images = cache}, pool).run(&compared);
  EXPECT_TRUE(std::isfinite(e.loss));
  EXPECT_EQ(predict(network, data, {.threads = 3}).to_vector(), compared.to_vector());
}

}  // namespace
}  // namespace lockstep
