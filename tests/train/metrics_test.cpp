// Metrics and confusion matrices in evaluation and training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/train/state/receipt.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::Recorder;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

const std::vector<std::string> all_names{"accuracy", "top-3", "precision", "recall", "f1", "auc"};

// Sums floats. The bits show the order of addition.
struct MeanScore {
  double sum = 0;
  int64_t count = 0;
  void accumulate(const ScoredObservation& o) {
    sum += 1e6 * static_cast<double>(o.scores[static_cast<size_t>(o.label)]) /
           static_cast<double>(count + 1);
    ++count;
  }
  void merge(const MeanScore& later) { sum += later.sum, count += later.count; }
  double finish() const { return sum / static_cast<double>(count); }
};
// Depends on the order of all observations.
struct InOrder {
  double value = 0;
  int64_t next = 0;
  void accumulate(const ScoredObservation& o) {
    EXPECT_EQ(o.index, next++);
    value = 0.9 * value + static_cast<double>(o.scores[0]);
  }
  double finish() const { return value; }
};
struct Failing {
  void accumulate(const ScoredObservation& o) {
    if (o.index == 70) throw InvalidArgument("[test] a metric that fails");
  }
  void merge(const Failing&) {}
  double finish() const { return 0; }
};

Network trained() {
  Network network = small_classifier();
  train(network, {some_digits(60), nullptr}, small_options());
  return network;
}

TEST(Evaluation, MetricsAreThoseOfTheScoresForAnyThreads) {
  Network network = trained();
  // Awkward sizes: batches of 64 and one of 22.
  const DatastorePtr data = some_digits(1750, 20);
  const std::vector<MetricPtr> own{make_metric("mean score", MeanScore{}),
                                   make_metric("in order", InOrder{})};
  const auto with = [&](int threads) {
    return evaluate(
        network, data,
        {.threads = threads, .metrics = all_names, .custom_metrics = own, .confusion = true});
  };
  const Evaluation one = with(1);
  ASSERT_EQ(one.metrics.size(), all_names.size() + 2);
  EXPECT_EQ(one.metrics[0].value, one.accuracy);
  for (const int threads : {2, 3, 7}) {
    const Evaluation e = with(threads);
    EXPECT_EQ(e.metrics, one.metrics) << threads;
    EXPECT_EQ(e.confusion, one.confusion) << threads;
    EXPECT_EQ(e.loss, one.loss) << threads;
  }
  // Computed from all scores at once.
  const Tensor outputs = predict(network, data);
  const MetricProblem problem{data->classes(), Shape{10}};
  std::vector<MetricPtr> metrics = metrics_for(all_names, {own[1]}, problem);
  ConfusionMatrix confusion(data->classes());
  for (size_t m = 0; m < metrics.size(); ++m) {
    const auto state = metrics[m]->init(problem);
    for (int64_t i = 0; i < data->size(); ++i) {
      const std::span<const float> row(outputs.data<float>() + 10 * i, 10);
      state->accumulate({i, row, data->label(i), {}});
      if (m == 0) confusion.add(data->label(i), predicted_class(row));
    }
    const MetricValue& found = one.metrics[m < all_names.size() ? m : m + 1];
    EXPECT_EQ(found.name, metrics[m]->name());
    EXPECT_EQ(found.value, state->finish()) << found.name;
  }
  EXPECT_EQ(one.confusion, confusion);
  EXPECT_EQ(one.confusion->total(), 1750);
  EXPECT_FALSE(evaluate(network, data).confusion);
  EXPECT_TRUE(evaluate(network, data).metrics.empty());
}

TEST(Evaluation, WithoutObservations) {
  Network network = trained();
  const Evaluation e = evaluate(
      network, subset(builtin_digits(), {}),
      {.metrics = all_names, .custom_metrics = {make_metric("o", InOrder{})}, .confusion = true});
  EXPECT_TRUE(std::isnan(e.metrics.at(0).value));
  EXPECT_EQ(e.metrics.at(6).value, 0);
  EXPECT_EQ(e.confusion->total(), 0);
}

// Results that are not numbers went unnoticed.
TEST(Evaluation, ALossThatIsNotFiniteIsReported) {
  const auto data = [](float last) {
    return with_targets(array_datastore(ArrayBlock{4, {1}, {1, 2, 3, last}}),
                        array_datastore(ArrayBlock{4, {1}, {1, 2, 3, 4}}));
  };
  Network network{feature_input({.features = 1, .normalization = "none"}),
                  fully_connected({.units = 1})};
  network.set_loss("mean_squared_error");
  network.initialize(1);
  TrainingOptions options = small_options();
  options.mini_batch_size = options.shards.size = 4;
  options.solver.initial_learning_rate = 1e-6;
  options.validation.frequency = 1;
  Recorder recorder;
  train(network, {.training = data(4), .validation = data(1e38f)}, options,
        {.observers = {&recorder}});
  EXPECT_EQ(recorder.validations.size(), 2u);
  const auto reports = [](const std::vector<std::string>& notices) {
    return std::ranges::count_if(notices, [](const std::string& text) {
      return text.find("the loss is inf: ") != text.npos;
    });
  };
  EXPECT_EQ(reports(recorder.notices), 1);
  std::vector<std::string> notices;
  const auto notice = [&](const std::string& text) { notices.push_back(text); };
  evaluate(network, data(4), {.notice = notice});
  EXPECT_EQ(reports(notices), 0);
  evaluate(network, data(1e38f), {.notice = notice});
  EXPECT_EQ(reports(notices), 1);
}

TEST(Evaluation, AFailingMetricEndsIt) {
  Network network = trained();
  for (const int threads : {1, 3}) {
    const EvaluationOptions options{.threads = threads,
                                    .custom_metrics = {make_metric("failing", Failing{})}};
    EXPECT_THROW(evaluate(network, some_digits(200), options), InvalidArgument);
  }
}

TEST(Evaluation, ImagesAsTargets) {
  Network network{
      image_input({.height = 28, .width = 28, .channels = 1, .normalization = "rescale-zero-one"}),
      convolution2d({.filters = 1, .kernel = {3, 3}, .padding = same_padding})};
  network.set_loss("mean_squared_error");
  network.initialize(3);
  const Tensor offset = network.state_value("image_input_1.offset");
  offset.copy_from(Tensor::zeros(offset.shape(), DType::f32));  // pixels as they are
  const DatastorePtr images = some_digits(150);
  struct Targets {
    double sum = 0;
    void accumulate(const ScoredObservation& o) {
      for (float t : o.target) sum += static_cast<double>(t);
    }
    double finish() const { return sum; }
  };
  const auto with = [&](int threads) {
    return evaluate(network, images,
                    {.threads = threads,
                     .targets = images,
                     .metrics = {"rmse", "mae"},
                     .custom_metrics = {make_metric("targets", Targets{})}});
  };
  const Evaluation e = with(1);
  EXPECT_EQ(with(3).metrics, e.metrics);
  double squares = 0, distances = 0, targets = 0;
  const auto made = predict(network, images).to_vector();
  for (int64_t i = 0; i < 150; ++i) {
    const auto pixels = to_planes(read_image(*images, i));
    for (size_t k = 0; k < pixels.size(); ++k) {
      const double wanted = pixels[k] / 255.0,
                   d = static_cast<double>(made[static_cast<size_t>(i) * pixels.size() + k]) -
                       wanted;
      squares += d * d;
      distances += std::abs(d);
      targets += wanted;
    }
  }
  const double elements = 150 * 28 * 28;
  EXPECT_NEAR(e.metrics[0].value, std::sqrt(squares / elements), 1e-7);
  EXPECT_NEAR(e.metrics[1].value, distances / elements, 1e-7);
  EXPECT_NEAR(e.metrics[2].value, targets, 1e-6 * targets);
  EXPECT_NEAR(e.metrics[0].value, std::sqrt(e.loss), 1e-6);

  EXPECT_THROW(evaluate(network, images, {.targets = images, .metrics = {"auc"}}), InvalidArgument);
  EXPECT_THROW(evaluate(network, images, {.targets = images, .confusion = true}), InvalidArgument);
}

TEST(TrainingMetrics, WrongOnesAreRefusedBeforeAnImageIsRead) {
  const auto refusal = [](std::vector<std::string> names) {
    Network network{image_input({.height = 6, .width = 5, .channels = 1}),
                    fully_connected({.units = 3}), softmax()};
    network.initialize(1);
    TrainingOptions options = small_options();
    options.validation.metrics = std::move(names);
    auto store = std::make_shared<testing::MemoryStore>(40, 6, 5, 1);
    store->on_read = [](int64_t) { ADD_FAILURE() << "read"; };
    try {
      train(network, {store, nullptr}, options);
    } catch (const InvalidArgument& error) {
      return std::string(error.what()) + " | " + error.hint();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(refusal({"f1", "acuracy"}).find("did you mean `accuracy`?"), std::string::npos);
  EXPECT_NE(refusal({"rmse"}).find("rmse is a regression metric"), std::string::npos);
  EXPECT_NE(refusal({"top-4"}).find("there are 3"), std::string::npos);
}

TEST(TrainingMetrics, EveryValidationHasThemAndResumesKeepThem) {
  TrainingOptions options = small_options();
  options.validation.metrics = {"f1", "top-3"};
  options.validation.custom_metrics = {make_metric("in order", InOrder{})};
  const TrainingData data{some_digits(60), some_digits(70, 100)};
  const auto run = [&](int64_t threads, const TrainingControl& control = {}) {
    Network network = small_classifier();
    options.threads = threads;
    const TrainingResult result = train(network, data, options, control);
    const Evaluation e = evaluate(network, data.validation,
                                  {.metrics = options.validation.metrics,
                                   .custom_metrics = options.validation.custom_metrics});
    if (!result.stopped) {
      EXPECT_EQ(e.metrics, result.validations.back().metrics);
    }
    return result;
  };
  const TemporaryFolder folder;
  ReceiptWriter receipt(local_files(), folder.path);
  const TrainingResult one = run(1, {.observers = {&receipt}});
  ASSERT_EQ(one.validations.size(), 2u);
  ASSERT_EQ(one.validations[0].metrics.size(), 3u);
  EXPECT_NE(one.validations[0].metrics, one.validations[1].metrics);

  receipt.finish();
  const std::string log = read_text(local_files(), join_path(folder.path, "log.jsonl"));
  nlohmann::json last;
  for (size_t begin = 0; begin < log.size(); begin = log.find('\n', begin) + 1) {
    const auto line = nlohmann::json::parse(log.substr(begin, log.find('\n', begin) - begin));
    if (line.contains("validation_metrics")) last = line["validation_metrics"];
  }
  for (const MetricValue& m : one.validations[1].metrics) EXPECT_EQ(last.at(m.name), m.value);

  TrainingControl control{.checkpoint_folder = join_path(folder.path, "checkpoints"),
                          .stop_after = 4};
  run(2, control);
  control.stop_after = 0;
  control.resume = true;
  const TrainingResult resumed = run(3, control);
  ASSERT_EQ(resumed.iterations.front().iteration, 5) << "it has begun anew";
  EXPECT_EQ(resumed.digest, one.digest);
  ASSERT_EQ(resumed.validations.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(resumed.validations[i].metrics, one.validations[i].metrics);
  }
}

}  // namespace
}  // namespace lockstep
