// The loss by connectionist temporal classification: what has no alignment, long sequences, bits
// that depend on valid steps and labels alone, and what is refused. Values and derivatives are
// cases of all ops (ctc_cases.cpp).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::ctc {
namespace {

Tensor whole(const std::vector<int32_t>& numbers, const Shape& shape) {
  return Tensor::from(numbers, shape);
}

struct Result {
  std::vector<float> loss, gradient;
};
Result result_of(const Tensor& logits, const Tensor& lengths, const Tensor& labels,
                 const Tensor& label_lengths, const ops::CtcParams& params = {}) {
  Tape tape;
  tape.watch(logits);
  const Tensor loss = ops::ctc_loss(logits, lengths, labels, label_lengths, params);
  return {loss.to_vector(), tape.gradient(ops::sum(loss), {logits})[0].to_vector()};
}

TEST(Ctc, HasNoGradientWithoutAlignments) {
  const Tensor logits = tensor_of(random_array({3, 3, 4}, 1));
  const Tensor lengths = whole({2, 3, 0}, {3}), labels = whole({1, 1, 2, 3, 1, 0}, {3, 2});
  const Tensor label_lengths = whole({2, 2, 1}, {3});
  for (const bool zero : {false, true}) {
    const Result found = result_of(logits, lengths, labels, label_lengths, {.zero_infinity = zero});
    const float none = zero ? 0 : std::numeric_limits<float>::infinity();
    EXPECT_EQ(found.loss[0], none);
    EXPECT_EQ(found.loss[2], none);
    EXPECT_GT(found.loss[1], 0);
    for (size_t i = 0; i < 36; ++i) {
      if (i / 12 == 1) {
        EXPECT_NE(found.gradient[i], 0);
      } else {
        EXPECT_EQ(found.gradient[i], 0);
      }
    }
  }
}

// All paths have equal probabilities, so the loss is known: of t steps and two classes, one label
// has t (t + 1) / 2 alignments.
TEST(Ctc, CountsTheAlignmentsOfLongSequences) {
  constexpr int64_t steps = 2000;
  const Result found = result_of(Tensor::full({1, steps, 2}, 3), whole({steps}, {1}),
                                 whole({1}, {1, 1}), whole({1}, {1}));
  const double alignments = std::log(steps * (steps + 1) / 2.0);
  EXPECT_NEAR(found.loss[0], steps * std::log(2.0) - alignments, 1e-3);
  // The probabilities of both classes add up to one.
  for (size_t t = 0; t < steps; ++t) {
    EXPECT_NEAR(found.gradient[2 * t] + found.gradient[2 * t + 1], 0, 1e-6);
  }
}

// The only alignment is far less probable than all other paths.
TEST(Ctc, KeepsWhatIsImprobable) {
  std::vector<float> logits(40 * 3);
  for (size_t t = 0; t < 40; ++t) logits[3 * t] = 200;
  std::vector<int32_t> labels;
  for (int32_t l = 0; l < 20; ++l) labels.push_back(1), labels.push_back(2);
  const Result found = result_of(Tensor::from(logits, {1, 40, 3}), whole({40}, {1}),
                                 whole(labels, {1, 40}), whole({40}, {1}));
  EXPECT_FLOAT_EQ(found.loss[0], 40 * 200);
  EXPECT_FLOAT_EQ(found.gradient[0], 1);
  EXPECT_FLOAT_EQ(found.gradient[1], -1);
}

TEST(Ctc, RoomAtTheEndChangesNoBit) {
  const std::vector<int32_t> lengths{6, 4}, label_lengths{3, 1};
  std::vector<Result> results;
  for (const int64_t room : {0, 1, 40}) {
    const int64_t t = 6 + room, l = 3 + room;
    std::vector<float> logits(static_cast<size_t>(2 * t * 5),
                              std::numeric_limits<float>::quiet_NaN());
    std::vector<int32_t> labels(static_cast<size_t>(2 * l), -1);
    for (int64_t i = 0; i < 2; ++i) {
      const Array values = random_array({lengths[static_cast<size_t>(i)], 5}, 3 + i);
      std::copy(values.values.begin(), values.values.end(), logits.begin() + i * t * 5);
      for (int64_t k = 0; k < 3; ++k)
        labels[static_cast<size_t>(i * l + k)] = static_cast<int32_t>(1 + (i + k) % 4);
    }
    Result found = result_of(Tensor::from(logits, {2, t, 5}), whole(lengths, {2}),
                             whole(labels, {2, l}), whole(label_lengths, {2}));
    std::vector<float> valid;
    for (int64_t i = 0; i < 2; ++i) {
      const auto row = found.gradient.begin() + i * t * 5;
      const auto end = row + lengths[static_cast<size_t>(i)] * 5;
      valid.insert(valid.end(), row, end);
      EXPECT_TRUE(std::all_of(end, row + t * 5, [](float slope) { return slope == 0; }));
    }
    results.push_back({found.loss, valid});
    EXPECT_EQ(results.back().loss, results.front().loss);
    EXPECT_EQ(results.back().gradient, results.front().gradient);
  }
}

TEST(Ctc, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 3, 4});
  const Tensor lengths = whole({3, 2}, {2}), labels = whole({1, 2, 3, 1}, {2, 2});
  const Tensor counts = whole({2, 1}, {2});
  expect_refusal(
      [&] {
        ops::ctc_loss(Tensor::zeros({2, 3}), lengths, labels, counts);
      },
      {"[ctc_loss]", "n x t x k", "2x3"});
  expect_refusal([&] { ops::ctc_loss(x, lengths, x, counts); }, {"[ctc_loss]", "2x3x4 f32"});
  expect_refusal([&] { ops::ctc_loss(x, whole({3}, {1}), labels, counts); },
                 {"[ctc_loss]", "lengths of 2 i32"});
  expect_refusal(
      [&] {
        ops::ctc_loss(x, whole({3, 4}, {2}), labels, counts);
      },
      {"[ctc_loss]", "length 4 of observation 1"});
  expect_refusal(
      [&] {
        ops::ctc_loss(x, lengths, labels, whole({3, 0}, {2}));
      },
      {"[ctc_loss]", "length 3 of observation 0"});
  expect_refusal(
      [&] {
        ops::ctc_loss(x, lengths, whole({1, 4, 3, 1}, {2, 2}), counts);
      },
      {"[ctc_loss]", "label 4 at position 1 of observation 0", "0 to 3"});
  expect_refusal(
      [&] {
        ops::ctc_loss(x, lengths, whole({1, 0, 3, 1}, {2, 2}), counts);
      },
      {"[ctc_loss]", "the blank class"});
  expect_refusal([&] { ops::ctc_loss(x, lengths, labels, counts, {.blank = 4}); },
                 {"[ctc_loss]", "blank", "received 4"});
}

}  // namespace
}  // namespace lockstep::optest::ctc
