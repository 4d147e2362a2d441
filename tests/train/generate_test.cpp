// Texts that networks continue, with networks whose probabilities are known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/interface/pass_threads.h"
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

// Each token from the probabilities that predict() gives for what the network sees.
GeneratedTokens by_definition(Network& network, GeneratedTokens text, int64_t most,
                              int64_t length) {
  auto begin = std::max<int64_t>(0, std::ssize(text) - most);
  GeneratedTokens made;
  for (int64_t i = 0; i < length; ++i) {
    if (std::ssize(text) - begin > most) begin = std::ssize(text) - (most + 1) / 2;
    const auto seen = std::span<const int32_t>(text).subspan(static_cast<size_t>(begin));
    const auto steps = static_cast<int64_t>(seen.size());
    const Tensor scores = network.predict(Tensor::from(seen, Shape{1, steps})).to_row_major();
    const int64_t classes = scores.shape().elements() / steps;
    const float* last = scores.data<float>() + classes * (steps - 1);
    made.push_back(static_cast<int32_t>(std::max_element(last, last + classes) - last));
    text.push_back(made.back());
  }
  return made;
}

TEST(Generate, ComputesEachTokenOnceAndGivesTheSameText) {
  const auto network_of = [](std::initializer_list<LayerPtr> middle) {
    Network network;
    network.add(token_input({.vocabulary = 9}));
    network.add(embedding({.vocabulary = 9, .units = 8, .weights_initializer = "he"}));
    for (const LayerPtr& layer : middle) network.add(layer);
    network.add(fully_connected({.units = 9, .weights_initializer = "he"}));
    network.add(softmax());
    network.initialize(3);
    return network;
  };
  const auto block = [] { return transformer_block({.heads = 2, .causal = true}); };
  Network limited = network_of({position_embedding({.positions = 7}), block(), block()});
  Network unlimited = network_of({block()}), recurrent = network_of({lstm({.units = 9})});
  Network whole = network_of({lstm({.units = 5, .bidirectional = true})});
  GeneratedTokens prompt{1, 8, 0, 4, 4, 2}, longer;
  for (int32_t i = 0; i < 150; ++i) longer.push_back(i * i % 9);
  constexpr int64_t all = 1000;
  const GenerateOptions plain{.length = 90, .temperature = 0};
  GenerateOptions of_five = plain;
  of_five.context = 5;
  for (const GeneratedTokens& begin : {prompt, longer, GeneratedTokens{3}}) {
    EXPECT_EQ(generate(limited, begin, plain), by_definition(limited, begin, 7, 90));
    EXPECT_EQ(generate(unlimited, begin, plain), by_definition(unlimited, begin, all, 90));
    EXPECT_EQ(generate(recurrent, begin, plain), by_definition(recurrent, begin, all, 90));
    for (Network* const network : {&limited, &unlimited, &recurrent, &whole}) {
      EXPECT_EQ(generate(*network, begin, of_five), by_definition(*network, begin, 5, 90));
    }
  }
  Network wide({token_input({.vocabulary = 300}), embedding({.vocabulary = 300, .units = 128}),
                transformer_block({.heads = 2, .causal = true}), fully_connected({.units = 300}),
                softmax()});
  wide.initialize(5);
  std::vector<std::vector<float>> scores;
  for (const int threads : {1, 3}) {
    kernels::PassThreads shared(threads);
    wide.reset_state();
    for (const int32_t token : prompt) {
      shared.run([&] {
        const Tensor next = wide.predict_and_update(Tensor::from(std::vector{token}, {1, 1}));
        scores.push_back(next.to_vector());
      });
    }
  }
  for (size_t i = 0; i < prompt.size(); ++i) EXPECT_EQ(scores[i], scores[prompt.size() + i]);
  // Sequences that were begun before go on after it, with parameters that changed.
  const Tensor segment = Tensor::from(std::vector<int32_t>{1, 2}, {1, 2});
  recurrent.predict_and_update(segment);
  Network copy = recurrent.clone();
  generate(recurrent, prompt, plain);
  EXPECT_EQ(recurrent.predict_and_update(segment).to_vector(),
            copy.predict_and_update(segment).to_vector());
  const Tensor& changed = recurrent.parameters()[0].value;
  std::fill_n(changed.data<float>(), changed.shape().elements(), 0.25f);
  EXPECT_NE(recurrent.predict_and_update(segment).to_vector(),
            copy.predict_and_update(segment).to_vector());
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
  EXPECT_NE(message({0}, {.threads = -1}).find("threads"), std::string::npos);
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
