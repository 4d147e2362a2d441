// Attention: bits that depend on valid steps alone, and what is refused. Values and derivatives are
// cases of all ops (attention_cases.cpp).
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest::attention_of_steps {
namespace {

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

// Observations of different lengths, each in the first of `room` steps; the others hold `rest`.
Tensor in_room(const std::vector<int32_t>& lengths, int64_t room, int64_t channels, uint64_t seed,
               float rest = kNothing) {
  std::vector<float> all(lengths.size() * static_cast<size_t>(room * channels), rest);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const Array values = random_array({lengths[i], channels}, seed + i);
    std::copy(values.values.begin(), values.values.end(),
              all.begin() + static_cast<std::ptrdiff_t>(i) * room * channels);
  }
  return Tensor::from(all, {static_cast<int64_t>(lengths.size()), room, channels});
}

Tensor of_lengths(const std::vector<int32_t>& lengths) {
  return Tensor::from(lengths, {static_cast<int64_t>(lengths.size())});
}

// The bits of the valid steps; those of the others must be 0.
std::string valid_bits(const Tensor& x, const std::vector<int32_t>& lengths) {
  const std::vector<float> all = x.to_vector();
  const size_t room = static_cast<size_t>(x.shape()[1]),
               channels = static_cast<size_t>(x.shape()[2]);
  std::string bits;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const float* const row = all.data() + i * room * channels;
    const size_t valid = static_cast<size_t>(lengths[i]) * channels;
    bits.append(reinterpret_cast<const char*>(row), valid * sizeof(float));
    for (size_t k = valid; k < room * channels; ++k) EXPECT_EQ(row[k], 0) << i << ", " << k;
  }
  return bits;
}

struct Lengths {
  std::vector<int32_t> queries, keys;
};

// The bits of the result and of all gradients at valid steps. Others have NaN in all operands, also
// in the output gradient.
std::vector<std::string> bits_of(const Lengths& lengths, int64_t room, bool causal, double dropout,
                                 bool from_end = false) {
  const ops::AttentionParams params{
      .heads = 2, .causal = causal, .from_end = from_end, .dropout = dropout, .layer = 5};
  const Tensor q = in_room(lengths.queries, room, 2 * 12, 1),
               k = in_room(lengths.keys, room, 24, 11);
  const Tensor v = in_room(lengths.keys, room, 2 * 7, 21);
  const Tensor dy = in_room(lengths.queries, room, 2 * 7, 31);
  Tape tape;
  tape.watch({{q, k, v}});
  const Tensor y = ops::attention(q, k, v, of_lengths(lengths.keys), of_lengths(lengths.queries),
                                  params, {.seed = 3, .iteration = 4, .first_row = 9});
  const Tensor valid = ops::expand_dims(ops::step_mask(of_lengths(lengths.queries), room), 2);
  const Tensor total = ops::sum(ops::where(ops::broadcast_to(valid, y.shape()), y * dy, 0));
  std::vector<std::string> bits{valid_bits(y, lengths.queries)};
  const std::vector<Tensor> gradients = tape.gradient(total, {q, k, v});
  bits.push_back(valid_bits(gradients[0], lengths.queries));
  for (const Tensor& gradient : {gradients[1], gradients[2]}) {
    bits.push_back(valid_bits(gradient, lengths.keys));
  }
  return bits;
}

TEST(AttentionBits, DependOnValidStepsAlone) {
  const std::vector<int32_t> some{130, 0, 1, 97, 48};
  for (const Lengths& lengths : {Lengths{some, some}, Lengths{{5, 3, 60, 1, 49}, some}}) {
    for (const bool causal : {false, true}) {
      for (const double dropout : {0.0, 0.25}) {
        const auto least = bits_of(lengths, 130, causal, dropout);
        for (const int64_t room : {131, 144, 300}) {
          EXPECT_EQ(bits_of(lengths, room, causal, dropout), least) << room;
        }
        if (!causal) continue;
        const auto from_end = bits_of(lengths, 130, true, dropout, true);
        EXPECT_EQ(bits_of(lengths, 300, true, dropout, true), from_end);
        EXPECT_EQ(from_end == least, lengths.keys == lengths.queries);
      }
    }
  }
}

// A query's result does not depend on how many queries there are.
TEST(AttentionBits, OfAQueryDoNotDependOnOtherQueries) {
  const auto all = bits_of({{100}, {130}}, 130, false, 0),
             some = bits_of({{7}, {130}}, 130, false, 0);
  EXPECT_EQ(all[0].substr(0, some[0].size()), some[0]);
  EXPECT_EQ(all[1].substr(0, some[1].size()), some[1]);
}

// The last queries of a sequence have the results that they have among all queries.
TEST(AttentionBits, FromTheEndAreThoseOfTheWholeSequence) {
  constexpr int32_t steps = 150, channels = 2 * 12;
  const Tensor q = in_room({steps}, steps, channels, 1), k = in_room({steps}, steps, channels, 2);
  const Tensor v = in_room({steps}, steps, 2 * 7, 3);
  const auto whole = ops::attention(q, k, v, {}, {}, {.heads = 2, .causal = true}).to_vector();
  const ops::AttentionParams params{.heads = 2, .causal = true, .from_end = true};
  for (const int64_t until : {1, 47, 48, 49, 96, 97, 150}) {
    for (const int64_t some : {1, 2, 48, 60}) {
      if (some > until) continue;
      const Tensor last = ops::slice(q, {{}, {until - some, until}});
      const auto y =
          ops::attention(last, k, v, of_lengths({static_cast<int32_t>(until)}), {}, params)
              .to_vector();
      EXPECT_TRUE(std::equal(y.begin(), y.end(), whole.begin() + (until - some) * 2 * 7))
          << some << " of " << until;
    }
  }
}

TEST(AttentionBits, AreTheSameOnEveryInstructionSet) {
  const std::vector<int32_t> lengths{130, 96, 1, 17};
  const auto best = bits_of({lengths, lengths}, 130, true, 0.25);
  const Lengths few{{5, 60, 1, 3}, lengths};
  const auto few_best = bits_of(few, 130, true, 0, true);
  int others = 0;
  for (int64_t all = hwy::SupportedTargets() & HWY_TARGETS; all != 0; all &= all - 1) {
    const Target only(all & -all);
    EXPECT_EQ(bits_of({lengths, lengths}, 130, true, 0.25), best) << hwy::TargetName(all & -all);
    EXPECT_EQ(bits_of(few, 130, true, 0, true), few_best) << hwy::TargetName(all & -all);
    ++others;
  }
  EXPECT_GT(others, 1);
}

TEST(Attention, DropsTheShareThatIsAskedFor) {
  constexpr size_t keys = 64;
  // Value j of both heads is a one at j, and all keys weigh the same.
  std::vector<float> ones(2 * keys * 2 * keys);
  for (size_t j = 0; j < 2 * keys; ++j) {
    ones[j * 2 * keys + j % keys] = ones[j * 2 * keys + keys + j % keys] = 1;
  }
  const Tensor q = Tensor::zeros({2, keys, 2}), v = Tensor::from(ones, {2, keys, 2 * keys});
  const Tensor y = ops::attention(q, q, v, {}, {}, {.heads = 2, .dropout = 0.3, .layer = 1});
  const std::vector<float> weights = y.to_vector();
  std::set<std::vector<float>> rows;
  size_t kept = 0;
  for (auto row = weights.begin(); row != weights.end(); row += keys) {
    rows.emplace(row, row + keys);
  }
  for (const float w : weights) {
    EXPECT_TRUE(w == 0 || std::abs(w * keys * 0.7f - 1) < 1e-5f) << w;
    kept += w != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(weights.size()), 0.7, 0.015);
  EXPECT_EQ(rows.size(), 2 * keys * 2) << "queries, heads and observations drop different keys";
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 3, 4}), none;
  const Tensor lengths = Tensor::from(std::vector<int32_t>{3, 0}, {2});
  const auto of = [](std::vector<int32_t> all) { return of_lengths(all); };
  expect_refusal(
      [&] {
        ops::attention(x, Tensor::zeros({2, 5, 3}), x);
      },
      {"[attention]", "2x3x4", "2x5x3"});
  expect_refusal([&] { ops::attention(x, Tensor::zeros({1, 3, 4}), x); }, {"[attention]", "1x3x4"});
  expect_refusal([&] { ops::attention(x, x, Tensor::zeros({2, 4, 4})); }, {"[attention]", "2x4x4"});
  expect_refusal([&] { ops::attention(Tensor::zeros({2, 4}), x, x); }, {"[attention]", "2x4"});
  expect_refusal([&] { ops::attention(x, x, x, {}, {}, {.heads = 3}); },
                 {"[attention]", "3 heads", "2x3x4"});
  expect_refusal([&] { ops::attention(x, x, x, {}, {}, {.heads = 0}); },
                 {"[attention]", "heads", "received 0"});
  expect_refusal([&] { ops::attention(x, x, x, {}, {}, {.from_end = true}); },
                 {"[attention]", "from_end", "causal"});
  expect_refusal([&] { ops::attention(x, x, x, {}, {}, {.dropout = 1}); },
                 {"[attention]", "dropout", "received 1"});
  expect_refusal([&] { ops::attention(x, x, x, {}, {}, {.scale = NAN}); },
                 {"[attention]", "scale", "nan"});
  expect_refusal(
      [&] {
        ops::attention(x, x, x, of({1, 2, 3}));
      },
      {"[attention]", "2 i32", "3 i32"});
  expect_refusal([&] { ops::attention(x, x, x, x); }, {"[attention]", "2 i32", "2x3x4 f32"});
  expect_refusal(
      [&] {
        ops::attention(x, x, x, of({3, 4}));
      },
      {"[attention]", "length 4 of observation 1", "0 to 3"});
  expect_refusal(
      [&] {
        ops::attention(x, x, x, lengths, of({-1, 0}));
      },
      {"[attention]", "length -1 of observation 0"});
}

}  // namespace
}  // namespace lockstep::optest::attention_of_steps
