// Texts that networks continue, with networks whose probabilities are known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using GeneratedTokens = std::vector<int32_t>;

// After any token, each one has its share.
Network network_of_shares(const std::vector<float>& shares) {
  const auto count = static_cast<int64_t>(shares.size());
  Network network({token_input({.vocabulary = count}),
                   embedding({.vocabulary = count, .units = count}), softmax()});
  network.initialize(0);
  std::vector<float> weights;
  for (int64_t row = 0; row < count; ++row) {
    for (const float share : shares) weights.push_back(std::log(share));
  }
  Tensor value = network.parameters().at(0).value;
  value.copy_from(Tensor::from(std::span<const float>(weights), Shape{count, count}));
  return network;
}

// How often each token is drawn.
std::vector<int64_t> counts_of(const std::vector<float>& shares, GenerateOptions options) {
  Network network = network_of_shares(shares);
  options.context = 1;
  std::vector<int64_t> counts(shares.size());
  for (const int32_t token : generate(network, GeneratedTokens{0}, options)) {
    ++counts.at(static_cast<size_t>(token));
  }
  return counts;
}

// Within five standard deviations.
void expect_shares(const std::vector<int64_t>& counts, const std::vector<double>& shares) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double expected = shares[i] * static_cast<double>(total);
    EXPECT_NEAR(static_cast<double>(counts[i]), expected, 5 * std::sqrt(expected)) << i;
  }
}

constexpr int64_t kDraws = 2000;

TEST(Generate, DrawsByTheProbabilities) {
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = kDraws}), {0.1, 0.6, 0.3});
  // To the power of 1 / temperature: squared, and the root.
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = kDraws, .temperature = 0.5}),
                {0.01 / 0.46, 0.36 / 0.46, 0.09 / 0.46});
  const double roots = std::sqrt(0.1) + std::sqrt(0.6) + std::sqrt(0.3);
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = kDraws, .temperature = 2}),
                {std::sqrt(0.1) / roots, std::sqrt(0.6) / roots, std::sqrt(0.3) / roots});
}

TEST(Generate, TopKAndTopPLeaveUnlikelyTokensOut) {
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = kDraws, .top_k = 2}),
                {0, 2.0 / 3, 1.0 / 3});
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = kDraws, .top_p = 0.7}),
                {0, 2.0 / 3, 1.0 / 3});
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = 50, .top_p = 0.5}), {0, 1, 0});
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = 50, .top_p = 0}), {0, 1, 0});
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = 50, .top_k = 1}), {0, 1, 0});
  // The share of top_p is one of the tokens that top_k leaves.
  expect_shares(counts_of({0.1f, 0.6f, 0.3f}, {.length = 50, .top_k = 2, .top_p = 0.65}),
                {0, 1, 0});
}

TEST(Generate, TheFirstOfEquallyLikelyTokensComesFirst) {
  for (const GenerateOptions& options :
       {GenerateOptions{.length = 20, .temperature = 0}, GenerateOptions{.length = 20, .top_k = 1},
        GenerateOptions{.length = 20, .top_p = 0}}) {
    EXPECT_EQ(counts_of({0.2f, 0.4f, 0.4f}, options), (std::vector<int64_t>{0, 20, 0}));
  }
}

TEST(Generate, ASeedGivesOneTextAndItsBegin) {
  Network network = network_of_shares({0.1f, 0.2f, 0.3f, 0.4f});
  const GeneratedTokens prompt{3, 1};
  const GeneratedTokens all = generate(network, prompt, {.length = 40, .seed = 7});
  ASSERT_EQ(all.size(), 40u);
  EXPECT_EQ(generate(network, prompt, {.length = 40, .seed = 7}), all);
  EXPECT_NE(generate(network, prompt, {.length = 40, .seed = 8}), all);
  GeneratedTokens told;
  const GeneratedTokens some = generate(network, prompt, {.length = 40, .seed = 7}, [&](int32_t t) {
    told.push_back(t);
    return told.size() < 5;
  });
  EXPECT_EQ(some, GeneratedTokens(all.begin(), all.begin() + 5));
  EXPECT_EQ(told, some);
  EXPECT_TRUE(generate(network, prompt, {.length = 0}).empty());
}

TEST(Generate, SeesTheLastTokensOfTheContextAlone) {
  Network network({token_input({.vocabulary = 5}), embedding({.vocabulary = 5, .units = 8}),
                   self_attention({.heads = 2, .causal = true}), fully_connected({.units = 5}),
                   softmax()});
  network.initialize(1);
  const GeneratedTokens a{0, 1, 2, 3, 4, 2}, b{3, 3, 2, 3, 4, 2};
  const GenerateOptions short_one{.length = 200, .context = 4};
  EXPECT_EQ(generate(network, a, short_one), generate(network, b, short_one));
  EXPECT_EQ(generate(network, a, {.length = 30, .context = 1000}),
            generate(network, a, {.length = 30}));
  // The text is what the definition says: each token from the probabilities of forward().
  GeneratedTokens text = a;
  for (const int32_t token : generate(network, a, {.length = 10, .temperature = 0})) {
    const auto steps = static_cast<int64_t>(text.size());
    const Tensor scores =
        network.forward({Tensor::from(std::span<const int32_t>(text), Shape{1, steps})})
            .to_row_major();
    const float* last = scores.data<float>() + 5 * (steps - 1);
    EXPECT_EQ(token, std::max_element(last, last + 5) - last);
    text.push_back(token);
  }
}

TEST(Generate, RefusesWhatCannotBe) {
  Network network = network_of_shares({0.5f, 0.5f});
  const auto message = [&](const GeneratedTokens& prompt, const GenerateOptions& options) {
    return message_of<InvalidArgument>([&] { generate(network, prompt, options); });
  };
  EXPECT_NE(message({}, {}).find("the prompt has no tokens"), std::string::npos);
  EXPECT_NE(message({0, 2}, {}).find("token 1 of the prompt is 2"), std::string::npos);
  EXPECT_NE(message({-1}, {}).find("token 0 of the prompt is -1"), std::string::npos);
  EXPECT_NE(message({0}, {.length = -1}).find("length"), std::string::npos);
  EXPECT_NE(message({0}, {.context = -1}).find("context"), std::string::npos);
  EXPECT_NE(message({0}, {.temperature = -0.5}).find("temperature"), std::string::npos);
  EXPECT_NE(message({0}, {.temperature = NAN}).find("temperature"), std::string::npos);
  EXPECT_NE(message({0}, {.top_k = -1}).find("top_k"), std::string::npos);
  EXPECT_NE(message({0}, {.top_p = 1.01}).find("top_p"), std::string::npos);
  Network vectors({feature_input({.features = 2, .normalization = "none"}), softmax()});
  vectors.initialize(0);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              generate(vectors, GeneratedTokens{0});
            }).find("not tokens"),
            std::string::npos);
  Network summary({token_input({.vocabulary = 2}), embedding({.vocabulary = 2, .units = 2}),
                   last_step(), softmax()});
  summary.initialize(0);
  EXPECT_NE(
      message_of<InvalidArgument>([&] { generate(summary, GeneratedTokens{0}); }).find("by step"),
      std::string::npos);
}

}  // namespace
}  // namespace lockstep
