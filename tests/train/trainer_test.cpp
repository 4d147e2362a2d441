#include "lockstep/train/trainer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/plan/packed_parameters.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/records/training_start.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::Recorder;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

TrainingData digits(int64_t n = 60) { return {some_digits(n), some_digits(20, 10)}; }

std::vector<float> values_of(const Network& network) {
  std::vector<float> all;
  for (const auto& l : network.parameters()) {
    const auto values = l.value.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  for (const auto& s : network.state()) {
    const auto values = s.value.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Ctrl-C during the reading of slow images does not wait for them or for an iteration.
TEST(Trainer, IsStoppedWhileItsDataAreRead) {
  const auto store = std::make_shared<testing::MemoryStore>(300, 28, 28, 1);
  store->names = builtin_digits()->classes();
  store->on_read = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  Network network = small_classifier();
  Recorder recorder;
  TrainingControl control;
  control.observers = {&recorder};
  const auto begun = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  control.interrupted = [&] { return seconds() > 0.5; };
  EXPECT_EQ(testing::message_of<Cancelled>([&] {
              train(network, TrainingData{store, nullptr}, small_options(), control);
            }),
            "[training] the training was stopped while its data was read");
  EXPECT_LT(seconds(), 2.5);
  EXPECT_TRUE(recorder.iterations.empty());
}

TEST(Trainer, LearnsAndReportsItsSteps) {
  Network network = small_classifier();
  TrainingOptions options = small_options();
  options.max_epochs = 12;
  Recorder recorder;
  TrainingControl control;
  control.observers = {&recorder};
  const auto result = train(network, digits(200), options, control);
  ASSERT_EQ(result.iterations.size(), 120u);
  ASSERT_EQ(recorder.iterations.size(), 120u);
  EXPECT_EQ(result.last_iteration, 120);
  EXPECT_FALSE(result.stopped);
  EXPECT_LT(result.iterations.back().loss, 0.5 * result.iterations.front().loss);
  EXPECT_GT(result.validations.back().accuracy, 0.5);
  EXPECT_EQ(result.digest, result.iterations.back().digest);
  for (size_t i = 0; i < result.iterations.size(); ++i) {
    const auto& r = result.iterations[i];
    EXPECT_EQ(r.iteration, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(r.epoch, static_cast<int64_t>(i) / 10 + 1);
    EXPECT_EQ(r.in_epoch, static_cast<int64_t>(i) % 10 + 1);
    EXPECT_EQ(r.observations_count, 20);
    EXPECT_GE(r.accuracy, 0);
    EXPECT_LE(r.accuracy, 1);
    EXPECT_GT(r.seconds, 0);
  }
  ASSERT_EQ(recorder.starts.size(), 1u);
  const TrainingStart& start = recorder.starts[0];
  EXPECT_EQ(start.observations, 200);
  EXPECT_EQ(start.validation_observations, 20);
  EXPECT_EQ(start.iterations_per_epoch, 10);
  EXPECT_EQ(start.iterations, 120);
  EXPECT_EQ(start.first_iteration, 1);
  EXPECT_EQ(start.shards, 3);
  EXPECT_EQ(start.threads, 2);
  ThreadPool pool(1);
  EXPECT_EQ(start.data, listing_digest(*some_digits(200), pool));
}

TEST(Trainer, ImagesPerSecondAreThoseOfTheIterations) {
  Network network = small_classifier();
  TrainingOptions options = small_options();
  options.max_epochs = 6;
  options.validation.frequency = 1;
  const auto result = train(network, digits(), options);
  double seconds = 0;
  int64_t images = 0;
  for (size_t i = 1; i < result.iterations.size(); ++i) {
    seconds += result.iterations[i].seconds;
    images += result.iterations[i].observations_count;
  }
  EXPECT_NEAR(result.images_per_second, static_cast<double>(images) / seconds,
              1e-6 * result.images_per_second);
  EXPECT_GT(result.images_per_second, 100);
  EXPECT_LT(result.images_per_second, 1e8);
  // Iterations and validations follow each other within the total time.
  for (const auto& v : result.validations) seconds += v.seconds;
  EXPECT_LE(seconds, result.seconds);
}

TEST(Trainer, ThePartialLastMiniBatchIsDroppedOrKept) {
  const auto observations = [](LastMiniBatch last) {
    Network network = small_classifier();
    TrainingOptions options = small_options();
    options.data.last_mini_batch = last;
    std::vector<int64_t> counts;
    for (const auto& r : train(network, digits(47), options).iterations) {
      counts.push_back(r.observations_count);
    }
    return counts;
  };
  EXPECT_EQ(observations(LastMiniBatch::drop), (std::vector<int64_t>{20, 20, 20, 20}));
  EXPECT_EQ(observations(LastMiniBatch::keep), (std::vector<int64_t>{20, 20, 7, 20, 20, 7}));
}

TEST(Trainer, ValidatesAtItsFrequencyAndAlwaysAtTheEnd) {
  const auto iterations = [](int64_t frequency, bool with_data = true) {
    Network network = small_classifier();
    TrainingOptions options = small_options();  // 3 iterations per epoch, 6 in total
    options.validation.frequency = frequency;
    TrainingData data = digits();
    if (!with_data) data.validation = nullptr;
    const auto result = train(network, data, options);
    std::vector<int64_t> all;
    for (const auto& v : result.validations) {
      EXPECT_EQ(v.observations, 20);
      all.push_back(v.iteration);
    }
    if (!result.validations.empty()) {
      const Evaluation e = evaluate(network, data.validation, {.threads = 1});
      EXPECT_EQ(e.loss, result.validations.back().loss) << "the path of evaluate()";
      EXPECT_EQ(e.accuracy, result.validations.back().accuracy);
    }
    return all;
  };
  EXPECT_EQ(iterations(0), (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(iterations(1), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(iterations(4), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(iterations(50), (std::vector<int64_t>{6}));
  EXPECT_EQ(iterations(0, false), (std::vector<int64_t>{}));
}

TEST(Trainer, TheEndIsTheLastCallOfAnObserver) {
  struct Last : testing::Recorder {
    void end() override { ended.push_back(static_cast<int64_t>(validations.size())); }
    std::vector<int64_t> ended;
  } last;
  Network network = small_classifier();
  TrainingControl control;
  control.observers = {&last};
  train(network, digits(), small_options(), control);
  EXPECT_EQ(last.ended, (std::vector<int64_t>{2}));
  EXPECT_EQ(last.starts.at(0).examples, "images");
}

TEST(Trainer, FrequenciesMayCountEpochs) {
  Network network = small_classifier();
  TrainingOptions options = small_options();
  options.max_epochs = 5;
  options.validation.frequency = 2;
  options.validation.frequency_unit = FrequencyUnit::epoch;
  options.checkpoints.frequency = 3;
  options.checkpoints.frequency_unit = FrequencyUnit::epoch;
  const TemporaryFolder folder;
  Recorder recorder;
  TrainingControl control;
  control.observers = {&recorder};
  control.checkpoint_folder = folder.path;
  train(network, digits(), options, control);
  std::vector<int64_t> validated, saved;
  for (const auto& v : recorder.validations) validated.push_back(v.iteration);
  for (const auto& c : recorder.checkpoints) saved.push_back(c.second);
  EXPECT_EQ(validated, (std::vector<int64_t>{6, 12, 15}));
  EXPECT_EQ(saved, (std::vector<int64_t>{9, 15}));
}

TEST(Trainer, ADryRunTriesEverythingOutAndStops) {
  Network network = small_classifier();
  const TemporaryFolder folder;
  Recorder recorder;
  TrainingControl control;
  control.observers = {&recorder};
  control.checkpoint_folder = folder.path;
  control.dry_run = true;
  TrainingOptions options = small_options();
  options.max_epochs = 1000;
  const TrainingResult result = train(network, digits(), options, control);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.last_iteration, 3);
  EXPECT_EQ(recorder.validations.size(), 1u);
  EXPECT_EQ(recorder.checkpoints.size(), 1u);
}

TEST(Trainer, ATimeLimitStopsWithACheckpointAndTheSameBitsAfterwards) {
  const auto digest_with = [](double max_time, bool resumed) {
    const TemporaryFolder folder;
    TrainingOptions options = small_options();
    options.max_time = max_time;
    TrainingControl control;
    control.checkpoint_folder = folder.path;
    Network network = small_classifier();
    TrainingResult result = train(network, digits(), options, control);
    EXPECT_EQ(result.stopped, resumed);
    if (resumed) {
      EXPECT_EQ(result.last_iteration, 1);
      options.max_time = 0;
      control.resume = true;
      Network again = small_classifier();
      result = train(again, digits(), options, control);
      EXPECT_EQ(result.iterations.front().iteration, 2) << "it has begun anew";
    }
    return result.digest;
  };
  EXPECT_EQ(digest_with(1e-9, true), digest_with(0, false));
}

TEST(Trainer, StoppingAndResumingAnywhereEndsInTheSameBits) {
  TrainingOptions options = small_options();
  options.validation.frequency = 2;
  options.data.last_mini_batch = LastMiniBatch::keep;  // 3 iterations per epoch, the last one of 7
  Network whole = small_classifier();
  const auto expected = train(whole, digits(47), options);
  ASSERT_EQ(expected.last_iteration, 6);
  for (int64_t at = 1; at <= 6; ++at) {
    SCOPED_TRACE(at);
    const TemporaryFolder folder;
    TrainingControl control;
    control.checkpoint_folder = folder.path;
    control.stop_after = at;
    Network first = small_classifier();
    const auto part = train(first, digits(47), options, control);
    EXPECT_EQ(part.last_iteration, at);
    EXPECT_EQ(part.stopped, at < 6);
    EXPECT_EQ(part.digest, expected.iterations[static_cast<size_t>(at) - 1].digest);

    control.stop_after = 0;
    control.resume = true;
    Network second = small_classifier(99);  // all values come from the checkpoint
    options.threads = 3;
    const auto rest = train(second, digits(47), options, control);
    EXPECT_EQ(rest.last_iteration, 6);
    EXPECT_FALSE(rest.stopped);
    EXPECT_EQ(rest.iterations.size(), static_cast<size_t>(6 - at));
    EXPECT_EQ(rest.digest, expected.digest);
    EXPECT_EQ(values_of(second), values_of(whole));
    ASSERT_EQ(rest.validations.size(), expected.validations.size());
    for (size_t i = 0; i < rest.validations.size(); ++i) {
      EXPECT_EQ(rest.validations[i].iteration, expected.validations[i].iteration);
      EXPECT_EQ(rest.validations[i].loss, expected.validations[i].loss);
    }
    for (const auto& r : rest.iterations) {
      const auto& e = expected.iterations[static_cast<size_t>(r.iteration) - 1];
      EXPECT_EQ(r.chain, e.chain) << "the receipt goes on";
      EXPECT_EQ(r.loss, e.loss);
      EXPECT_EQ(r.observations, e.observations);
    }
  }
}

TEST(Trainer, AStopFromOutsideEndsAfterTheIterationWithACheckpoint) {
  const TemporaryFolder folder;
  Recorder recorder;
  TrainingControl control;
  control.observers = {&recorder};
  control.checkpoint_folder = folder.path;
  control.stop = [&] { return recorder.iterations.size() == 2; };
  Network network = small_classifier();
  const auto result = train(network, digits(), small_options(), control);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.last_iteration, 2);
  ASSERT_EQ(recorder.checkpoints.size(), 1u);
  EXPECT_EQ(recorder.checkpoints[0].second, 2);
}

TEST(Trainer, WhatAnObserverThrowsEndsTheTraining) {
  Recorder recorder;
  recorder.on_iteration = [](const IterationRecord& r) {
    if (r.iteration == 2) throw Cancelled("[test] enough");
  };
  TrainingControl control;
  control.observers = {&recorder};
  Network network = small_classifier();
  EXPECT_THROW(train(network, digits(), small_options(), control), Cancelled);
}

TEST(Trainer, ALossThatIsNotANumberStopsWithTheIterationNamedAndKeepsTheLastValues) {
  const TemporaryFolder folder;
  Network network = small_classifier();
  TrainingOptions options = small_options();
  options.checkpoints.frequency = 3;
  std::vector<float> last;
  Recorder recorder;
  recorder.on_iteration = [&](const IterationRecord& r) {
    last = values_of(network);
    if (r.iteration == 4) {  // neither validated nor saved
      // The result of a diverging step.
      network.parameter("fully_connected_1.weights").data<float>()[0] = std::nanf("");
      network.packed().pack_all();
      last = values_of(network);
    }
  };
  TrainingControl control;
  control.observers = {&recorder};
  control.checkpoint_folder = folder.path;
  try {
    train(network, digits(), options, control);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("iteration 5 (epoch 2)"), std::string::npos)
        << error.what();
    EXPECT_NE(error.hint().find("initial_learning_rate"), std::string::npos) << error.hint();
    EXPECT_NE(error.hint().find("after iteration 4 are not finite either"), std::string::npos)
        << error.hint();
  }
  EXPECT_EQ(recorder.iterations.size(), 4u);
  const auto now = values_of(network);
  ASSERT_EQ(now.size(), last.size());
  EXPECT_EQ(std::memcmp(now.data(), last.data(), now.size() * sizeof(float)), 0)
      << "parameters, velocity and moving statistics stay those of iteration 4";
}

TEST(Trainer, ALearningRateThatIsFarTooLargeIsReported) {
  Network network = small_classifier();
  TrainingOptions options = small_options();
  options.solver.initial_learning_rate = 1e30;
  options.max_epochs = 10;
  try {
    train(network, digits(), options);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the loss of iteration"), std::string::npos)
        << error.what();
  }
}

// Number of allocations and bytes in use, after each iteration.
struct Allocations {
  std::vector<size_t> asked, in_use;

  explicit Allocations(TrainingOptions options) {
    Recorder recorder;
    recorder.on_iteration = [&](const IterationRecord&) {
      asked.push_back(allocator_statistics().system_allocations);
      in_use.push_back(allocator_statistics().in_use);
    };
    TrainingControl control;
    control.observers = {&recorder};
    Network network = small_classifier();
    options.max_epochs = 5;
    train(network, digits(47), options, control);
  }
};

TEST(Trainer, AStepAllocatesNothingAfterTheFirst) {
  TrainingOptions options = small_options();
  options.validation.frequency = 1;
  options.threads = 1;
  const Allocations one(options);
  ASSERT_EQ(one.asked.size(), 10u);
  EXPECT_EQ(one.asked.back(), one.asked[1]);
  EXPECT_EQ(one.in_use.back(), one.in_use[1]);
  // With more threads, at most two of three shards wait for their siblings at some time.
  options.threads = 3;
  const Allocations three(options);
  EXPECT_LE(three.asked.back(), three.asked[1] + 2);
}

TEST(Trainer, MiniBatchesOfTwoSizesAllocateNothingAfterTheFirstEpoch) {
  TrainingOptions options = small_options();
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.threads = 1;
  const Allocations all(options);
  ASSERT_EQ(all.asked.size(), 15u);
  EXPECT_EQ(all.asked.back(), all.asked[3]);
  EXPECT_EQ(all.in_use.back(), all.in_use[3]);
}

TEST(Trainer, WhatDoesNotFitIsRefusedBeforeAnythingRuns) {
  const auto error_of = [](Network& network, const TrainingData& data) -> std::string {
    try {
      train(network, data, small_options());
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto expect = [&](Network network, const TrainingData& data, const char* words) {
    const std::string text = error_of(network, data);
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  expect(small_classifier(), {nullptr, nullptr}, "no training observations");
  expect(small_classifier(), {some_digits(0), nullptr}, "no training observations");
  expect(small_classifier(), {some_digits(10), nullptr}, "larger than the data");
  Network raw{image_input({.height = 28, .width = 28, .channels = 1}),
              fully_connected({.units = 10}), softmax()};
  expect(raw.clone(), digits(), "not initialized");
  Network unsound{image_input({.height = 28, .width = 28, .channels = 1}), addition()};
  expect(unsound.clone(), digits(), "addition_1");
  auto other = std::make_shared<testing::MemoryStore>(6, 28, 28, 1);
  expect(small_classifier(), {some_digits(60), other}, "different classes");
  Network larger{image_input({.height = 32, .width = 28, .channels = 1}),
                 fully_connected({.units = 10}), softmax()};
  larger.initialize(1);
  expect(larger.clone(), digits(), "28");
}

TEST(Trainer, ThreadsBeyondTheShardsStayIdle) {
  TrainingOptions options = small_options();
  options.threads = 5;
  Network network = small_classifier();
  const auto result = train(network, digits(), options);
  // 6 iterations of 3 shards.
  EXPECT_EQ(result.shards_by_thread, (std::vector<int64_t>{6, 6, 6, 0, 0}));
}

// ---- Input normalization ----

TEST(InputNormalization, FollowsTheStatedFormulas) {
  ChannelStatistics statistics(2);
  const uint8_t first[] = {10, 20, 30, 60}, second[] = {7, 7, 7, 7};
  std::vector<uint8_t> image(first, first + 4);
  image.insert(image.end(), second, second + 4);
  statistics.add(image.data(), 4);
  const double mean = 30, deviation = std::sqrt((400.0 + 100 + 0 + 900) / 4);
  struct Row {
    const char* normalization;
    double offset, factor;                    // of the first channel
    double constant_offset, constant_factor;  // of the second
  };
  for (const Row& row :
       {Row{"none", 0, 1, 0, 1}, Row{"zero-center", mean, 1, 7, 1},
        Row{"z-score", mean, 1 / deviation, 7, 1}, Row{"rescale-zero-one", 10, 1.0 / 50, 7, 1},
        Row{"rescale-symmetric", 35, 2.0 / 50, 7, 1}}) {
    SCOPED_TRACE(row.normalization);
    Network network{
        image_input({.height = 2, .width = 2, .channels = 2, .normalization = row.normalization})};
    network.initialize(1);
    set_input_normalization(network, statistics);
    const auto offset = network.state_value("image_input_1.offset").to_vector();
    const auto factor = network.state_value("image_input_1.factor").to_vector();
    EXPECT_EQ(offset[0], static_cast<float>(row.offset));
    EXPECT_EQ(factor[0], static_cast<float>(row.factor));
    EXPECT_EQ(offset[1], static_cast<float>(row.constant_offset));
    EXPECT_EQ(factor[1], static_cast<float>(row.constant_factor));
  }
}

TEST(InputNormalization, RefusesAnInputWithOtherChannels) {
  Network network{feature_input({.features = 7})};
  network.initialize(1);
  try {
    set_input_normalization(network, ChannelStatistics(3));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "[training] statistics of 3 channels do not fit the input `feature_input_1` of 7");
  }
}

TEST(InputNormalization, ComesFromTheTrainingSplitAloneWithoutAugmentation) {
  Network plain = small_classifier(), augmented = small_classifier();
  TrainingOptions options = small_options();
  options.max_epochs = 1;
  TrainingData data = digits();
  train(plain, data, options);
  data.augmentation = {.reflect_x = true, .translate_x = {-9, 9}, .translate_y = {5, 9}};
  data.validation = nullptr;
  train(augmented, data, options);
  EXPECT_EQ(plain.state_value("image_input_1.offset").to_vector(),
            augmented.state_value("image_input_1.offset").to_vector());
  EXPECT_GT(plain.state_value("image_input_1.offset").to_vector()[0], 1);
  EXPECT_NE(values_of(plain), values_of(augmented));
}

}  // namespace
}  // namespace lockstep
