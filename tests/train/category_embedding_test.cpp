// Learned vectors for the categories of tables.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::message_of;

// Features: a number, two categories, a number, three categories, of which each is 1 in turn.
std::vector<float> row_of(int64_t i) {
  std::vector<float> row(7, 0);
  row[0] = static_cast<float>(i % 5) * 100 + 300;
  row[static_cast<size_t>(1 + i % 2)] = 1;
  row[3] = static_cast<float>(i % 7) - 3;
  row[static_cast<size_t>(4 + i % 3)] = 1;
  return row;
}

TrainingData rows_with_categories() {
  ArrayBlock inputs{.count = 60, .shape = {7}}, targets{.count = 60, .shape = {1}};
  for (int64_t i = 0; i < 60; ++i) {
    const std::vector<float> row = row_of(i);
    inputs.values.insert(inputs.values.end(), row.begin(), row.end());
    targets.values.push_back(row[3] + 2 * row[1] - 3 * row[5]);
  }
  TrainingData data{.training = array_datastore(std::move(inputs))};
  data.training_targets = array_datastore(std::move(targets));
  return data;
}

Network embedded(const std::string& normalization = "z-score") {
  Network network;
  network.add(feature_input({.features = 7, .normalization = normalization}), "in");
  network.add(category_embedding({.first = {1, 4}, .categories = {2, 3}, .units = {2, 4}}),
              "kinds");
  network.add(fully_connected({.units = 1}), "out");
  network.set_loss("mean_squared_error");
  network.initialize(5);
  return network;
}

std::vector<float> parameter_of(const Network& network, const std::string& name) {
  for (const Parameter& parameter : network.parameters()) {
    if (parameter.name == name) return parameter.value.to_vector();
  }
  return {};
}

TEST(CategoryEmbedding, GivesTheRowsOfItsMatricesAfterTheNumbers) {
  Network network = embedded("none");
  std::vector<float> rows;
  for (int64_t i = 0; i < 6; ++i) {
    const std::vector<float> row = row_of(i);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  rows.insert(rows.end(), {1, 0, 0, 2, 0, 0, 0});  // texts that the training did not have
  const Tensor x = Tensor::from(rows, {7, 7});
  const std::vector<float> got = network.forward({x}, {.outputs = {"kinds"}}).to_vector();
  const std::vector<float> two = parameter_of(network, "kinds.weights_1");
  const std::vector<float> three = parameter_of(network, "kinds.weights_2");
  ASSERT_EQ(two.size(), 4u);
  ASSERT_EQ(three.size(), 12u);
  ASSERT_EQ(got.size(), 7u * 8u);
  for (size_t i = 0; i < 6; ++i) {
    std::vector<float> expected{rows[i * 7], rows[i * 7 + 3]};
    for (size_t u = 0; u < 2; ++u) expected.push_back(two[i % 2 * 2 + u]);
    for (size_t u = 0; u < 4; ++u) expected.push_back(three[i % 3 * 4 + u]);
    EXPECT_EQ(std::vector<float>(got.begin() + static_cast<long>(i * 8),
                                 got.begin() + static_cast<long>(i * 8 + 8)),
              expected);
  }
  EXPECT_EQ(std::vector<float>(got.end() - 8, got.end()),
            (std::vector<float>{1, 2, 0, 0, 0, 0, 0, 0}));
}

TEST(CategoryEmbedding, InputsDoNotNormalizeItsFeatures) {
  for (const char* how : {"zero-center", "z-score", "rescale-zero-one", "rescale-symmetric"}) {
    Network network = embedded(how);
    // Numbers of 300 that are only centered leave the range of f32 soon with larger steps.
    TrainingOptions options = testing::small_options();
    options.solver.initial_learning_rate = 1e-6;
    train(network, rows_with_categories(), options);
    const std::vector<float> offset = network.state_value("in.offset").to_vector();
    const std::vector<float> factor = network.state_value("in.factor").to_vector();
    for (const size_t category : {1, 2, 4, 5, 6}) {
      EXPECT_EQ(offset[category], 0) << how;
      EXPECT_EQ(factor[category], 1) << how;
    }
    EXPECT_GT(offset[0], 299) << how;
  }
}

TEST(CategoryEmbedding, LearnsWithOneDigestForThreads) {
  TrainingOptions options = testing::small_options();
  options.max_epochs = 60;
  Network first = embedded();
  const TrainingResult one = train(first, rows_with_categories(), options);
  EXPECT_LT(one.iterations.back().loss, 0.05);
  for (const int64_t threads : {1, 5}) {
    options.threads = threads;
    Network network = embedded();
    EXPECT_EQ(train(network, rows_with_categories(), options).digest, one.digest) << threads;
  }
}

TEST(CategoryEmbedding, RefusesBlocksThatDoNotFit) {
  const auto refusal = [](CategoryEmbeddingOptions options) {
    Network network{feature_input({.features = 7}), category_embedding(std::move(options))};
    return message_of<InvalidArgument>([&] { network.check(); });
  };
  const std::pair<CategoryEmbeddingOptions, const char*> cases[] = {
      {{.first = {5}, .categories = {3}, .units = {1}}, "3 features from 5 on, but there are 7"},
      {{.first = {1, 2}, .categories = {2, 2}, .units = {1, 1}}, "block 2 has 2 features from 2"},
      {{.first = {3, 0}, .categories = {1, 1}, .units = {1, 1}}, "block 2 has 1 features from 0"},
      {{.first = {1}, .categories = {2, 2}, .units = {1}}, "have 1, 2 and 1 numbers"}};
  for (const auto& [options, expected] : cases) {
    const std::string said = refusal(options);
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  }
  Network images{image_input({.height = 4, .width = 4, .channels = 1}),
                 category_embedding({.first = {0}, .categories = {1}, .units = {1}})};
  EXPECT_NE(message_of<InvalidArgument>([&] { images.check(); }).find("expected vectors"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
