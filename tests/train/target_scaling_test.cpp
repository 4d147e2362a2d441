// Networks that learn normalized targets and give results in the units of the data.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

constexpr int64_t kRows = 70;

float feature_of(int64_t row, int64_t column) {
  return static_cast<float>((row * 7 + column * 5) % 11) / 4 - 1;
}

// Prices near a million, and a share; a third column is constant.
float target_of_row(int64_t row, int64_t column) {
  if (column == 2) return -37.5f;
  const float x = feature_of(row, 0) - 0.5f * feature_of(row, 1);
  return column == 0 ? 1e6f + 2e5f * x : 0.01f * x;
}

DatastorePtr array_of(int64_t columns, float (*value)(int64_t row, int64_t column)) {
  ArrayBlock block{.count = kRows, .shape = {columns}};
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t c = 0; c < columns; ++c) block.values.push_back(value(i, c));
  }
  return array_datastore(std::move(block));
}

Network regressor(const std::string& normalization, int64_t targets = 3) {
  Network network;
  network.add(feature_input({.features = 2, .normalization = "z-score"}), "in");
  network.add(fully_connected({.units = 8}), "hidden");
  network.add(tanh(), "tanh");
  network.add(fully_connected({.units = targets}), "out");
  if (!normalization.empty()) {
    network.add(denormalization({.normalization = normalization}), "scaled");
  }
  network.set_loss("mean_squared_error");
  network.initialize(3);
  return network;
}

TrainingData prices() {
  TrainingData data{.training = array_of(2, feature_of)};
  data.training_targets = array_of(3, target_of_row);
  data.validation = data.training;
  data.validation_targets = data.training_targets;
  return data;
}

TrainingOptions price_options(int64_t threads = 2) {
  TrainingOptions options = testing::small_options();
  options.solver.type = "adam";
  options.solver.initial_learning_rate = 0.02;
  options.max_epochs = 40;
  options.threads = threads;
  options.validation.metrics = {"rmse", "mae"};
  return options;
}

std::vector<float> state_of(const Network& network, const std::string& name) {
  return network.state_value(name).to_vector();
}

// What scikit-learn's StandardScaler and MinMaxScaler would hold.
void expect_statistics(const Network& network, const std::string& how) {
  const std::vector<float> offset = state_of(network, "scaled.offset");
  const std::vector<float> scale = state_of(network, "scaled.scale");
  for (int64_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0, low = 1e30, high = -1e30;
    for (int64_t i = 0; i < kRows; ++i) {
      const double t = double{target_of_row(i, c)};
      sum += t, low = std::min(low, t), high = std::max(high, t);
    }
    for (int64_t i = 0; i < kRows; ++i) {
      squares += std::pow(double{target_of_row(i, c)} - sum / kRows, 2);
    }
    const bool score = how == "z-score";
    const double at = score ? sum / kRows : low;
    const double by = c == 2 ? 1 : score ? std::sqrt(squares / kRows) : high - low;
    const auto column = static_cast<size_t>(c);
    EXPECT_NEAR(double{offset[column]}, at, 1e-6 * std::abs(at) + 1e-9) << how << c;
    EXPECT_NEAR(double{scale[column]}, by, 1e-6 * by) << how << c;
  }
}

// A network without the layer, trained on targets that the test has scaled.
TEST(TargetScaling, TrainsAsOnScaledTargets) {
  for (const std::string how : {"z-score", "rescale-zero-one"}) {
    Network scaled = regressor(how), plain = regressor("");
    const TrainingResult result = train(scaled, prices(), price_options());
    expect_statistics(scaled, how);
    static std::vector<float> offset, scale;
    offset = state_of(scaled, "scaled.offset"), scale = state_of(scaled, "scaled.scale");
    TrainingData data = prices();
    data.training_targets = data.validation_targets = array_of(3, [](int64_t i, int64_t c) {
      const auto k = static_cast<size_t>(c);
      return (target_of_row(i, c) - offset[k]) / scale[k];
    });
    const TrainingResult other = train(plain, data, price_options());
    ASSERT_EQ(result.iterations.size(), other.iterations.size());
    for (size_t i = 0; i < result.iterations.size(); ++i) {
      ASSERT_EQ(result.iterations[i].loss, other.iterations[i].loss) << how << " " << i;
    }
    EXPECT_EQ(result.validations.back().loss, other.validations.back().loss);
    EXPECT_LT(result.validations.back().loss, 0.05);
    for (size_t p = 0; p < plain.parameters().size(); ++p) {
      EXPECT_EQ(scaled.parameters()[p].value.to_vector(), plain.parameters()[p].value.to_vector());
    }
    const std::vector<float> units = predict(scaled, prices().training, {.threads = 1}).to_vector();
    const std::vector<float> scores = predict(plain, prices().training, {.threads = 1}).to_vector();
    ASSERT_EQ(units.size(), size_t{3 * kRows});
    double squares = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      const size_t c = i % 3;
      const double expected = double{scores[i]} * double{scale[c]} + double{offset[c]};
      EXPECT_NEAR(double{units[i]}, expected, 1e-6 * std::abs(expected) + 1e-7);
      const auto row = static_cast<int64_t>(i / 3), column = static_cast<int64_t>(c);
      squares += std::pow(double{units[i]} - double{target_of_row(row, column)}, 2) / 3;
    }
    EXPECT_NEAR(result.validations.back().metrics.at(0).value, std::sqrt(squares / kRows),
                1e-6 * std::sqrt(squares / kRows));
  }
}

TEST(TargetScaling, HasOneDigestForThreadsStopsAndResumes) {
  Network first = regressor("z-score");
  const TrainingResult one = train(first, prices(), price_options(1));
  for (const int64_t threads : {2, 5}) {
    Network network = regressor("z-score");
    EXPECT_EQ(train(network, prices(), price_options(threads)).digest, one.digest) << threads;
  }
  TemporaryFolder folder;
  Network stopped = regressor("z-score"), resumed = regressor("z-score");
  train(stopped, prices(), price_options(2), {.checkpoint_folder = folder.path, .stop_after = 31});
  const TrainingResult rest = train(resumed, prices(), price_options(5),
                                    {.checkpoint_folder = folder.path, .resume = true});
  EXPECT_EQ(rest.digest, one.digest);
  EXPECT_EQ(rest.network_digest, one.network_digest);
}

TEST(TargetScaling, SaysWhatItDoes) {
  testing::Recorder recorder;
  Network network = regressor("z-score");
  train(network, prices(), price_options(), {.observers = {&recorder}});
  ASSERT_EQ(recorder.notices.size(), 1u);
  EXPECT_NE(recorder.notices[0].find("(z-score)"), std::string::npos);
  EXPECT_NE(recorder.notices[0].find("1 target of 3 with one value alone is only shifted"),
            std::string::npos)
      << recorder.notices[0];
}

TEST(TargetScaling, IsAdvisedForLargeTargets) {
  const auto notices = [](Network network, const TrainingData& data) {
    testing::Recorder recorder;
    TrainingOptions options = price_options();
    options.max_epochs = 1;
    train(network, data, options, {.observers = {&recorder}});
    return recorder.notices;
  };
  const std::vector<std::string> said = notices(regressor(""), prices());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(said[0].starts_with("the targets are large (mean 1.02e+06, standard ")) << said[0];
  EXPECT_NE(said[0].find("target_scaling = \"z-score\""), std::string::npos) << said[0];
  TrainingData small = prices();
  small.training_targets = small.validation_targets = array_of(3, feature_of);
  EXPECT_TRUE(notices(regressor(""), small).empty());
}

TEST(TargetScaling, IsAPartOfTheModel) {
  TemporaryFolder folder;
  Network network = regressor("rescale-zero-one");
  train(network, prices(), price_options());
  save_model(local_files(), folder.path + "/m.safetensors", network, {});
  Network read = load_model(local_files(), folder.path + "/m.safetensors").network;
  const Tensor x = Tensor::from(std::vector<float>{1, 0.5f, -1, 0.25f}, {2, 2});
  EXPECT_EQ(read.predict(x).to_vector(), network.predict(x).to_vector());
  EXPECT_NEAR(network.predict(x).to_vector()[0], 1e6f + 2e5f * 0.75f, 1e5f);
  // Kept statistics are those of the model.
  Network kept = regressor("kept");
  for (const NetworkState& state : kept.state())
    state.value.copy_from(read.state_value(state.name));
  TrainingData data = prices();
  data.training_targets = data.validation_targets = array_of(3, feature_of);
  train(kept, data, price_options());
  EXPECT_EQ(state_of(kept, "scaled.offset"), state_of(network, "scaled.offset"));
}

// Of each step, over all steps of all sequences.
TEST(TargetScaling, ScalesTargetsByStep) {
  std::vector<Array> inputs, targets;
  double sum = 0, count = 0;
  for (int64_t i = 0; i < 30; ++i) {
    const int64_t steps = 1 + i % 4;
    Array input{{steps, 1}, {}}, target{{steps, 1}, {}};
    for (int64_t s = 0; s < steps; ++s) {
      input.values.push_back(feature_of(i, s));
      target.values.push_back(5e5f + 1e4f * feature_of(i, s));
      sum += double{target.values.back()};
      ++count;
    }
    inputs.push_back(std::move(input));
    targets.push_back(std::move(target));
  }
  Network network{sequence_input({.channels = 1}), fully_connected({.units = 1}),
                  denormalization()};
  network.set_loss("mean_squared_error");
  network.initialize(1);
  TrainingData data{.training = with_targets(sequence_datastore(std::move(inputs)),
                                             sequence_datastore(std::move(targets)))};
  TrainingOptions options = price_options();
  options.max_epochs = 100;
  options.solver.initial_learning_rate = 0.1;
  const TrainingResult result = train(network, data, options);
  EXPECT_NEAR(state_of(network, "denormalization_1.offset")[0], sum / count, 0.1);
  EXPECT_LT(result.iterations.back().loss, 0.05);
}

TEST(TargetScaling, ALoopSetsItsStatistics) {
  Network network = regressor("z-score", 1);
  set_input_normalization(network, std::vector<ChannelSummary>{{0, 1, -1, 1}, {0, 1, -1, 1}});
  const Tensor x = Tensor::from(std::vector<float>{1, 2}, {1, 2});
  EXPECT_EQ(message_of<InvalidArgument>([&] { network.predict(x); }),
            "[network] the layer `scaled` has normalization = \"z-score\", but no statistics of "
            "the training targets");
  EXPECT_NE(message_of<InvalidArgument>([&] {
              set_target_scaling(network, {{0, 1, 0, 1}, {0, 1, 0, 1}});
            }).find("2 channels do not fit"),
            std::string::npos);
  const double nan = std::nan("");
  for (const ChannelSummary& far :
       {ChannelSummary{nan, nan, 0, 1}, ChannelSummary{0, 1e300, 0, 1}}) {
    EXPECT_NE(message_of<InvalidArgument>([&] {
                set_target_scaling(network, {far});
              }).find("of the targets leaves the range of f32"),
              std::string::npos);
  }
  set_target_scaling(network, {{100, 2, 0, 1}});
  const float scaled = network.predict(x).to_vector()[0];
  set_target_scaling(network, {{0, 1, 0, 1}});
  EXPECT_FLOAT_EQ(scaled, 100 + 2 * network.predict(x).to_vector()[0]);
}

TEST(TargetScaling, RefusesWhatItCannotScale) {
  const auto refusal = [](Network network, const TrainingData& data) {
    return message_of<InvalidArgument>([&] { train(network, data, price_options()); });
  };
  TrainingData labels{.training = testing::some_digits(20)};
  Network classifier{image_input({.height = 28, .width = 28, .channels = 1}),
                     fully_connected({.units = 10}), softmax(), denormalization()};
  classifier.initialize(1);
  EXPECT_NE(refusal(std::move(classifier), labels).find("but the data has labels"),
            std::string::npos);
  Network within{feature_input({.features = 2}), denormalization(), fully_connected({.units = 3})};
  within.set_loss("mean_squared_error");
  within.initialize(1);
  EXPECT_NE(refusal(std::move(within), prices()).find("not the only result"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
