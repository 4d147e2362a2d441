// Edit distances, error rates, and the best path of CTC.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {
namespace {

std::vector<int32_t> letters(const std::string& text) { return {text.begin(), text.end()}; }

int64_t between(const std::string& a, const std::string& b) {
  return edit_distance(letters(a), letters(b));
}

TEST(EditDistance, OfKnownWords) {
  EXPECT_EQ(between("kitten", "sitting"), 3);
  EXPECT_EQ(between("flaw", "lawn"), 2);
  EXPECT_EQ(between("intention", "execution"), 5);
  EXPECT_EQ(between("", ""), 0);
  EXPECT_EQ(between("", "abc"), 3);
  EXPECT_EQ(between("abc", ""), 3);
  EXPECT_EQ(between("abc", "abc"), 0);
  EXPECT_EQ(between("ab", "ba"), 2);
}

// By its definition, without a table.
int64_t defined(std::span<const int32_t> a, std::span<const int32_t> b) {
  if (a.empty() || b.empty()) return std::ssize(a) + std::ssize(b);
  const int64_t replaced = defined(a.subspan(1), b.subspan(1)) + (a.front() == b.front() ? 0 : 1);
  return std::min({replaced, defined(a.subspan(1), b) + 1, defined(a, b.subspan(1)) + 1});
}

TEST(EditDistance, IsThatOfItsDefinition) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<int32_t> a(random() % 6), b(random() % 6);
    for (int32_t& token : a) token = static_cast<int32_t>(random() % 3);
    for (int32_t& token : b) token = static_cast<int32_t>(random() % 3);
    EXPECT_EQ(edit_distance(a, b), defined(a, b));
    EXPECT_EQ(edit_distance(b, a), edit_distance(a, b));
  }
}

TEST(ErrorRates, AddUpOverSequences) {
  ErrorRate rate;
  EXPECT_TRUE(std::isnan(rate.value()));
  rate.add(letters("hxllo"), letters("hello"));
  rate.add(letters("abc"), letters(""));
  EXPECT_EQ(rate.value(), 4.0 / 5);
  ErrorRate later;
  later.add(letters("wor"), letters("world"));
  rate.merge(later);
  EXPECT_EQ(rate.value(), 6.0 / 10);
}

TEST(CtcGreedyDecode, MergesRepetitionsAndLeavesBlanksOut) {
  // By step the class with the highest score; of equal ones the first.
  const std::vector<int32_t> best{1, 1, 0, 1, 2, 2, 0, 0, 2, 1, 1, 1};
  std::vector<float> scores(best.size() * 3, -1);
  for (size_t t = 0; t < best.size(); ++t) scores[3 * t + static_cast<size_t>(best[t])] = 2;
  scores[3 * 9] = 2;  // as high as class 1 at the second row's step 3
  const Tensor x = Tensor::from(std::span<const float>(scores), Shape{2, 6, 3});
  const auto lengths = [](std::vector<int32_t> of) {
    return Tensor::from(std::span<const int32_t>(of), Shape{std::ssize(of)});
  };
  using Read = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(ctc_greedy_decode(x, lengths({6, 6})), (Read{{1, 1, 2}, {2, 1}}));
  EXPECT_EQ(ctc_greedy_decode(x, lengths({0, 3})), (Read{{}, {2}}));
  EXPECT_EQ(ctc_greedy_decode(x, lengths({6, 6}), 2), (Read{{1, 0, 1}, {0, 0, 1}}));
  EXPECT_THROW(ctc_greedy_decode(x, lengths({7, 0})), InvalidArgument);
  EXPECT_THROW(ctc_greedy_decode(x, lengths({1})), InvalidArgument);
  EXPECT_THROW(ctc_greedy_decode(x, lengths({1, 1}), 3), InvalidArgument);
  EXPECT_THROW(ctc_greedy_decode(lengths({1, 1}), lengths({1, 1})), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
