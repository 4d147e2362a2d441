// Augmentation of sequences: distributions, values by hand, parts of sequences, and mini-batches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numbers>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/images/augmentation.h"
#include "tests/data/queues.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::copy_of;
using testing::drain;
using testing::expect_equal;
using testing::expect_says;
using testing::message_of;

// Which draw: its epoch, observation and input.
struct Use {
  uint64_t seed = 1;
  int64_t epoch = 0, index = 0, input = 0;
};

// A sequence of `value`, augmented.
std::vector<float> augmented(const Augmentation& a, int64_t steps, int64_t channels,
                             const Use& use = {}, float value = 1) {
  std::vector<float> values(static_cast<size_t>(steps * channels), value);
  augment_sequence(a, use.seed, use.epoch, use.index, {steps, channels, 0, steps}, values.data(),
                   use.input);
  return values;
}

// Mean, standard deviation, and the fourth moment of what is standardized (normal: 3).
struct Moments {
  double mean = 0, deviation = 0, fourth = 0;
  explicit Moments(const std::vector<double>& values) {
    const auto n = static_cast<double>(values.size());
    for (const double v : values) mean += v / n;
    for (const double v : values) deviation += (v - mean) * (v - mean) / n;
    deviation = std::sqrt(deviation);
    for (const double v : values) fourth += std::pow((v - mean) / deviation, 4) / n;
  }
};

// ---- Noise and factors ----

TEST(SequenceAugmentation, JitterIsNormalAndIndependent) {
  constexpr int64_t kSteps = 100'000, kChannels = 3;
  std::vector<double> noise;
  for (const float v : augmented({.jitter = 0.5}, kSteps, kChannels, {}, 0)) noise.push_back(v);
  const Moments m(noise);
  const auto n = static_cast<double>(noise.size());
  // Five standard deviations of each estimate.
  EXPECT_NEAR(m.mean, 0, 5 * 0.5 / std::sqrt(n));
  EXPECT_NEAR(m.deviation, 0.5, 5 * 0.5 / std::sqrt(2 * n));
  EXPECT_NEAR(m.fourth, 3, 5 * std::sqrt(96 / n));
  for (const double limit : {0.0, 0.3, 1.0, 2.0, 3.0}) {
    double above = 0, below = 0;
    for (const double v : noise) {
      above += v > 0.5 * limit;
      below += v < -0.5 * limit;
    }
    const double share = std::erfc(limit / std::numbers::sqrt2) / 2;
    EXPECT_NEAR(above / n, share, 5 * std::sqrt(share / n)) << limit;
    EXPECT_NEAR(below / n, share, 5 * std::sqrt(share / n)) << limit;
  }
  // Neighbors: also the two numbers of a pair, and their squares.
  for (const size_t lag : {1, 2, 3, 4, 256}) {
    double together = 0, squares = 0;
    for (size_t i = lag; i < noise.size(); ++i) {
      together += noise[i] * noise[i - lag] / 0.25;
      squares += (noise[i] * noise[i] / 0.25 - 1) * (noise[i - lag] * noise[i - lag] / 0.25 - 1);
    }
    EXPECT_NEAR(together / n, 0, 5 / std::sqrt(n)) << lag;
    EXPECT_NEAR(squares / n, 0, 5 * 2 / std::sqrt(n)) << lag;
  }
}

// Box and Muller by the C library, in double, from the words of the stream.
TEST(SequenceAugmentation, NoiseAndFactorsAreThoseOfTheirStreams) {
  const Use use{.seed = 77, .epoch = 3, .index = 12, .input = 2};
  const auto normals = [&](uint64_t change, size_t count) {
    const RandomStream stream({.seed = use.seed,
                               .use = RandomUse::augment,
                               .a = 3,
                               .b = 12,
                               .c = (uint64_t{1} << 63) + 8 + change});
    std::vector<double> all;
    for (size_t i = 0; i < count; ++i) {
      const auto words = stream.block(i / 4);
      const size_t pair = i % 4 / 2;
      const double u = (words[2 * pair] + 0.5) / 0x1p32;
      const uint32_t w = words[2 * pair + 1];
      const double turn =
          ((w >> 30) + ((w & 0x3fffffff) + 0.5) / 0x1p30 - 0.5) * std::numbers::pi / 2;
      all.push_back(std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(turn) : std::sin(turn)));
    }
    return all;
  };
  constexpr int64_t kSteps = 301, kChannels = 270;  // more than are made together, and not whole
  const auto jitter = normals(0, kSteps * kChannels), factors = normals(1, kChannels);
  const auto noisy = augmented({.jitter = 1.5}, kSteps, kChannels, use, 0);
  const auto scaled = augmented({.scaling = 0.1}, kSteps, kChannels, use, 2);
  const auto both = augmented({.jitter = 1.5, .scaling = 0.1}, kSteps, kChannels, use, 2);
  for (size_t i = 0; i < noisy.size(); ++i) {
    const double noise = 1.5 * jitter[i], product = 2 + 0.2 * factors[i % kChannels];
    ASSERT_NEAR(noisy[i], noise, 1e-7 * (1 + std::abs(noise))) << i;
    ASSERT_NEAR(scaled[i], product, 1e-7 * (1 + std::abs(product))) << i;
    ASSERT_NEAR(both[i], product + noise, 3e-7 * (2 + std::abs(product) + std::abs(noise))) << i;
  }
}

TEST(SequenceAugmentation, ScalingIsOneFactorForAChannel) {
  constexpr int64_t kSteps = 9, kChannels = 4, kUses = 40'000;
  std::vector<double> factors;
  for (int64_t i = 0; i < kUses; ++i) {
    std::vector<float> values;
    for (int64_t k = 0; k < kSteps * kChannels; ++k) {
      values.push_back(std::ldexp(1.0f, static_cast<int>(k % 7)));  // products are exact
    }
    const std::vector<float> before = values;
    augment_sequence({.scaling = 0.2}, 1, 0, i, {kSteps, kChannels, 0, kSteps}, values.data());
    for (size_t k = 0; k < values.size(); ++k) {
      ASSERT_EQ(values[k] / before[k], values[k % kChannels] / before[k % kChannels]);
    }
    for (size_t c = 0; c < kChannels; ++c) {
      factors.push_back(static_cast<double>(values[c] / before[c]));
    }
  }
  const Moments m(factors);
  const auto n = static_cast<double>(factors.size());
  EXPECT_NEAR(m.mean, 1, 5 * 0.2 / std::sqrt(n));
  EXPECT_NEAR(m.deviation, 0.2, 5 * 0.2 / std::sqrt(2 * n));
  EXPECT_NEAR(m.fourth, 3, 5 * std::sqrt(96 / n));
}

// ---- Masks ----

// First step and length of the zeros, which must be one run.
std::pair<int64_t, int64_t> run_of_zeros(const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  int64_t first = 0;
  while (first < n && values[static_cast<size_t>(first)] != 0) ++first;
  int64_t end = first;
  while (end < n && values[static_cast<size_t>(end)] == 0) ++end;
  for (int64_t i = end; i < n; ++i) EXPECT_NE(values[static_cast<size_t>(i)], 0);
  return {first, end - first};
}

// Pearson's test of counts that should be equal, by six standard deviations.
void expect_uniform(const std::vector<double>& counts) {
  double all = 0, chi = 0;
  for (const double c : counts) all += c;
  const double each = all / static_cast<double>(counts.size());
  for (const double c : counts) chi += (c - each) * (c - each) / each;
  const double freedom = static_cast<double>(counts.size()) - 1;
  EXPECT_LT(chi, freedom + 6 * std::sqrt(2 * freedom) + 6);
}

TEST(SequenceAugmentation, LengthsAndPlacesOfMasksAreUniform) {
  constexpr int64_t kSteps = 10, kUses = 60'000;
  for (const int64_t longest : {1, 4, 10, 1000}) {
    const int64_t most = std::min(longest, kSteps);
    std::vector<double> lengths(static_cast<size_t>(most + 1));
    std::map<int64_t, std::vector<double>> places;
    for (int64_t i = 0; i < kUses; ++i) {
      const auto [first, length] =
          run_of_zeros(augmented({.time_mask = longest}, kSteps, 1, {.index = i}));
      ASSERT_LE(length, most);
      ++lengths[static_cast<size_t>(length)];
      if (length == 0) continue;
      auto& starts = places[length];
      starts.resize(static_cast<size_t>(kSteps - length + 1));
      ++starts.at(static_cast<size_t>(first));
    }
    expect_uniform(lengths);
    for (const auto& [length, starts] : places) {
      if (starts.size() > 1) expect_uniform(starts);
    }
  }
}

TEST(SequenceAugmentation, MasksTakeWholeStepsOrWholeChannels) {
  constexpr int64_t kSteps = 12, kChannels = 5;
  std::vector<double> channels(4);
  int64_t two = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const auto by_steps =
        augmented({.time_mask = 4, .time_masks = 2}, kSteps, kChannels, {.index = i});
    int64_t masked = 0, runs = 0;
    bool before = false;
    for (size_t t = 0; t < kSteps; ++t) {
      for (size_t c = 0; c < kChannels; ++c) {
        ASSERT_EQ(by_steps[t * kChannels + c], by_steps[t * kChannels]);
      }
      const bool is = by_steps[t * kChannels] == 0;
      masked += is;
      runs += is && !before;
      before = is;
    }
    ASSERT_LE(masked, 8);
    ASSERT_LE(runs, 2);
    two += runs == 2;
    const auto by_channels = augmented({.channel_mask = 3}, kSteps, kChannels, {.index = i});
    const std::vector<float> first(by_channels.begin(), by_channels.begin() + kChannels);
    for (size_t k = 0; k < by_channels.size(); ++k) ASSERT_EQ(by_channels[k], first[k % kChannels]);
    ++channels.at(static_cast<size_t>(run_of_zeros(first).second));
  }
  EXPECT_GT(two, 500);
  expect_uniform(channels);
}

TEST(SequenceAugmentation, AMaskHasAtMostItsFractionOfTheSteps) {
  for (const int64_t steps : {1, 3, 10, 29}) {
    for (const double fraction : {0.05, 0.5, 0.99, 1.0}) {
      int64_t longest = 0;
      for (int64_t i = 0; i < 2000; ++i) {
        const Augmentation a{.time_mask = 1000, .time_mask_fraction = fraction};
        longest = std::max(longest, run_of_zeros(augmented(a, steps, 1, {.index = i})).second);
      }
      EXPECT_EQ(longest, static_cast<int64_t>(fraction * static_cast<double>(steps)));
    }
  }
}

TEST(SequenceAugmentation, OneStepIsMaskedHalfTheTime) {
  int64_t masked = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    masked += augmented({.time_mask = 20}, 1, 1, {.index = i})[0] == 0;
  }
  EXPECT_NEAR(static_cast<double>(masked), 2000, 5 * 32);
  EXPECT_EQ(augmented({.jitter = 1, .scaling = 1, .time_mask = 2, .channel_mask = 2}, 0, 3).size(),
            0u);
  EXPECT_EQ(augmented({.jitter = 1, .scaling = 1, .time_mask = 2, .channel_mask = 2}, 3, 0).size(),
            0u);
  EXPECT_NE(augmented({.jitter = 1}, 1, 1)[0], 1);
  EXPECT_NE(augmented({.scaling = 1}, 1, 1)[0], 1);
}

// ---- Keys and parts ----

const Augmentation all_changes{.jitter = 0.3,
                               .scaling = 0.2,
                               .time_mask = 5,
                               .time_masks = 2,
                               .time_mask_fraction = 0.4,
                               .channel_mask = 1};

TEST(SequenceAugmentation, IsAFunctionOfItsKey) {
  const auto base = augmented(all_changes, 40, 3);
  EXPECT_EQ(augmented(all_changes, 40, 3), base);
  for (const Use& use : {Use{.seed = 2}, {.epoch = 1}, {.index = 1}, {.input = 1}}) {
    EXPECT_NE(augmented(all_changes, 40, 3, use), base);
  }
  EXPECT_EQ(augmented({}, 40, 3), std::vector<float>(120, 1));
  EXPECT_EQ(augmented({.reflect_x = true, .rotation = {0, 90}}, 40, 3), std::vector<float>(120, 1));
  // A change does not depend on the others.
  Augmentation one{.jitter = 0.3};
  const auto noise = augmented(one, 40, 3, {}, 0);
  const auto with_masks =
      augmented({.jitter = 0.3, .time_mask = 9, .channel_mask = 2}, 40, 3, {}, 0);
  const auto masks = augmented({.time_mask = 9, .channel_mask = 2}, 40, 3);
  for (size_t i = 0; i < noise.size(); ++i) EXPECT_EQ(with_masks[i], masks[i] == 0 ? 0 : noise[i]);
}

TEST(SequenceAugmentation, APartIsChangedAsTheWholeSequence) {
  for (const int64_t channels : {1, 3, 300}) {
    for (const int64_t steps : {1, 2, 30, 700}) {
      const auto whole = augmented(all_changes, steps, channels, {.index = steps});
      for (const int64_t length : {1, 7, 64, 1000}) {
        if (steps / length > 100) continue;
        std::vector<float> segments(whole.size(), 1);
        for (int64_t first = 0; first < steps; first += length) {
          augment_sequence(all_changes, 1, 0, steps,
                           {steps, channels, first, std::min(length, steps - first)},
                           segments.data() + first * channels);
        }
        EXPECT_EQ(segments, whole) << channels << " " << steps << " " << length;
      }
    }
  }
}

// Steps of channels x rows x columns: noise for each value, factors and masks for each channel.
TEST(SequenceAugmentation, ChannelsMayHaveSeveralValues) {
  constexpr int64_t kSteps = 6, kChannels = 4, kEach = 5;
  const auto changed = [&](const Augmentation& a) {
    std::vector<float> values(kSteps * kChannels * kEach, 1);
    for (const int64_t first : {0, 2}) {
      augment_sequence(a, 1, 0, 0, {kSteps, kChannels, first, first == 0 ? 2 : 4, kEach},
                       values.data() + first * kChannels * kEach);
    }
    return values;
  };
  EXPECT_EQ(changed({.jitter = 1}), augmented({.jitter = 1}, kSteps, kChannels * kEach));
  for (const Augmentation& a : {Augmentation{.scaling = 1}, Augmentation{.time_mask = 4},
                                Augmentation{.channel_mask = 3, .channel_masks = 3}}) {
    const auto values = changed(a), one = augmented(a, kSteps, kChannels);
    EXPECT_NE(one, std::vector<float>(kSteps * kChannels, 1));
    for (size_t k = 0; k < values.size(); ++k) EXPECT_EQ(values[k], one[k / kEach]);
  }
}

// The bits of gcc and clang, with and without clones and optimization.
TEST(SequenceAugmentation, BitsStay) {
  constexpr int64_t kSteps = 301, kChannels = 270;
  std::vector<float> values(kSteps * kChannels);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) / 32 - 1;
  augment_sequence(all_changes, 77, 3, 12, {kSteps, kChannels, 0, kSteps}, values.data(), 2);
  EXPECT_EQ(digest_of(values.data(), values.size() * sizeof(float)).to_string(),
            "339b7d34f613b71a5cdd10df3c49eb49");
}

TEST(SequenceAugmentation, TheModeOfTheThreadChangesNoBit) {
  const Augmentation a{.jitter = 1e-38, .scaling = 0.5};
  const auto tiny = augmented(a, 200, 2, {}, 1e-38f);
  {
    const ArithmeticMode mode;
    EXPECT_EQ(augmented(a, 200, 2, {}, 1e-38f), tiny);
  }
  {
    const OrdinaryArithmetic mode;
    EXPECT_EQ(augmented(a, 200, 2, {}, 1e-38f), tiny);
  }
  EXPECT_GT(std::count(tiny.begin(), tiny.end(), 0.0f), 10);
}

TEST(SequenceAugmentation, WhatCannotBeIsRefusedByName) {
  const auto refusal = [](const Augmentation& a) {
    return message_of<InvalidArgument>([&] { augmented(a, 3, 2); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-0.1, nan, std::numeric_limits<double>::infinity()}) {
    expect_says(refusal({.jitter = bad}), "[augmentation] jitter is ");
    expect_says(refusal({.scaling = bad}), "[augmentation] scaling is ");
    expect_says(refusal({.time_mask = 1, .time_mask_fraction = bad}),
                "[augmentation] time_mask_fraction is ");
  }
  expect_says(refusal({.jitter = -1}), "jitter is -1, but must be >= 0 and <= 1e+30");
  expect_says(refusal({.time_mask = -1}), "time_mask is -1, but must be >= 0 and <= 2147483648");
  expect_says(refusal({.time_mask = 1, .time_masks = 0}), "time_masks is 0, but must be >= 1");
  expect_says(refusal({.time_mask = 1, .time_mask_fraction = 0}),
              "time_mask_fraction is 0, but must be > 0 and <= 1");
  expect_says(refusal({.channel_mask = -2}), "channel_mask is -2");
  expect_says(refusal({.channel_mask = 1, .channel_masks = -2}), "channel_masks is -2");
  expect_says(refusal({.time_masks = 2}), "time_masks is given, but time_mask is 0");
  expect_says(refusal({.time_mask_fraction = 0.5}), "time_mask_fraction is given, but time_mask");
  expect_says(refusal({.channel_masks = 2}), "channel_masks is given, but channel_mask is 0");
  float value = 1;
  for (const SequencePart& part : {SequencePart{2, 1, 2, 1},
                                   {2, 1, -1, 1},
                                   {2, 1, 0, -1},
                                   {-1, 1, 0, 0},
                                   {2, -1, 0, 1},
                                   {0, 1, 0, 1},
                                   {2, 1, 0, 1, -1}}) {
    expect_says(message_of<InvalidArgument>(
                    [&] { augment_sequence({.jitter = 1}, 1, 0, 0, part, &value); }),
                "are not in a sequence of");
  }
  EXPECT_EQ(value, 1);
}

TEST(SequenceAugmentation, SaysWhatChanges) {
  EXPECT_FALSE(Augmentation{}.any());
  EXPECT_EQ((Augmentation{.jitter = 1, .time_mask = 1}.sequence_change()), "jitter");
  EXPECT_EQ(Augmentation{.scaling = 1}.sequence_change(), "scaling");
  EXPECT_EQ(Augmentation{.time_mask = 1}.sequence_change(), "time_mask");
  EXPECT_EQ(Augmentation{.channel_mask = 1}.sequence_change(), "channel_mask");
  EXPECT_TRUE(Augmentation{.channel_mask = 1}.any());
  EXPECT_FALSE(Augmentation{.channel_mask = 1}.moves());
  EXPECT_EQ(Augmentation{.jitter = 1}.image_change(), "");
  EXPECT_EQ((Augmentation{.shear_y = {0, 1}, .jitter = 1}.image_change()), "shear_y");
}

// ---- Mini-batches ----

constexpr int64_t kSequences = 37;

int64_t steps_of(int64_t i) { return 1 + i * i % 23; }

std::vector<Array> counted(int64_t channels) {
  std::vector<Array> all;
  for (int64_t i = 0; i < kSequences; ++i) {
    Array one{{steps_of(i), channels}, {}};
    for (int64_t k = 0; k < one.shape.elements(); ++k) {
      one.values.push_back(static_cast<float>(10 * i + k % 13 + 1));
    }
    all.push_back(std::move(one));
  }
  return all;
}

// Two inputs of sequences and tokens between them, with targets by step.
DatastorePtr several_sequences() {
  std::vector<IntegerArray> tokens;
  for (int64_t i = 0; i < kSequences; ++i) {
    IntegerArray one{{steps_of(i)}, {}};
    for (int64_t t = 0; t < steps_of(i); ++t) one.values.push_back(static_cast<int32_t>(t % 5));
    tokens.push_back(std::move(one));
  }
  return with_targets(
      combine({sequence_datastore(counted(2)), sequence_datastore(std::move(tokens)),
               sequence_datastore(counted(2))}),
      sequence_datastore(counted(1)));
}

MiniBatchQueueOptions queue_options() {
  return {.mini_batch_size = 5,
          .drop_last = false,
          .seed = 7,
          .augmentation = all_changes,
          .max_epochs = 2};
}

// Whatever the mini-batches, an observation has the values of augment_sequence() in its epoch.
TEST(SequenceAugmentation, MiniBatchesHaveTheValuesOfWholeSequences) {
  const std::vector<Array> two = counted(2), one = counted(1);
  for (const int64_t length : {0, 1, 3, 7, 1000}) {
    for (const int64_t grouped : {0, 2}) {
      MiniBatchQueueOptions options = queue_options();
      options.sequence_length = length;
      options.group_by_length = grouped;
      MiniBatchQueue queue(several_sequences(), {{2}, {}, {2}}, options);
      int64_t rows = 0;
      for (const MiniBatch& batch : drain(queue)) {
        for (int64_t row = 0; row < batch.size(); ++row) {
          const int64_t i = batch.observations[static_cast<size_t>(row)];
          const int64_t steps = steps_of(i), first = std::min(steps, batch.segment * length);
          const int64_t count = length == 0 ? steps : std::min(length, steps - first);
          for (const int64_t k : {0, 2}) {
            std::vector<float> wanted = two[static_cast<size_t>(i)].values;
            augment_sequence(all_changes, 7, batch.epoch, i, {steps, 2, 0, steps}, wanted.data(),
                             k);
            const auto bytes = batch.input(static_cast<size_t>(k)).bytes_of(row, 1);
            ASSERT_EQ(bytes.size(), static_cast<size_t>(count) * 2 * sizeof(float));
            if (count > 0) {
              ASSERT_EQ(
                  std::memcmp(bytes.data(), &wanted[static_cast<size_t>(2 * first)], bytes.size()),
                  0);
            }
          }
          const auto target = batch["targets"].bytes_of(row, 1);
          if (count > 0) {
            ASSERT_EQ(std::memcmp(target.data(),
                                  &one[static_cast<size_t>(i)].values[static_cast<size_t>(first)],
                                  target.size()),
                      0);
          }
          rows += count;
        }
        for (size_t k = 0; k < batch.input(1).values<int32_t>().size(); ++k) {
          ASSERT_LT(batch.input(1).values<int32_t>()[k], 5);
        }
      }
      int64_t steps = 0;
      for (int64_t i = 0; i < kSequences; ++i) steps += steps_of(i);
      EXPECT_GE(rows, length == 0 ? 2 * steps : steps);
    }
  }
}

TEST(SequenceAugmentation, StepsOfMiniBatchesMayBeImages) {
  std::vector<Array> frames;
  for (int64_t i = 0; i < 7; ++i) {
    frames.push_back({{i + 1, 3, 2, 2}, std::vector<float>(static_cast<size_t>(12 * (i + 1)), 1)});
  }
  MiniBatchQueueOptions options = queue_options();
  options.sequence_length = 2;
  MiniBatchQueue queue(sequence_datastore(std::move(frames)), {{3, 2, 2}}, options);
  for (const MiniBatch& batch : drain(queue)) {
    std::vector<float> wanted;
    for (const int64_t i : batch.observations) {
      const int64_t first = std::min(i + 1, 2 * batch.segment);
      const int64_t count = std::min<int64_t>(2, i + 1 - first);
      std::vector<float> own(static_cast<size_t>(12 * count), 1);
      augment_sequence(all_changes, 7, batch.epoch, i, {i + 1, 3, first, count, 4}, own.data());
      wanted.insert(wanted.end(), own.begin(), own.end());
    }
    EXPECT_EQ(copy_of<float>(batch.input()), wanted);
  }
}

TEST(SequenceAugmentation, ThreadsAndStartsChangeNoBit) {
  for (const int64_t length : {0, 3}) {
    MiniBatchQueueOptions options = queue_options();
    options.sequence_length = length;
    options.group_by_length = 2;
    MiniBatchQueue one(several_sequences(), {{2}, {}, {2}}, options);
    const std::vector<MiniBatch> wanted = drain(one);
    for (const int threads : {2, 5}) {
      options.threads = threads;
      options.prefetch = 2 * threads;
      options.cache_bytes = threads == 5 ? 0 : options.cache_bytes;
      MiniBatchQueue other(several_sequences(), {{2}, {}, {2}}, options);
      expect_equal(drain(other), wanted);
    }
    const int64_t from = one.batches_per_epoch() / 2;
    MiniBatchQueue later(several_sequences(), {{2}, {}, {2}}, options, 1, from);
    expect_equal(drain(later), {wanted.begin() + one.batches_per_epoch() + from, wanted.end()});
    // Without augmentation of images on the host, that of sequences is still here.
    options.augment_inputs = false;
    MiniBatchQueue as_read(several_sequences(), {{2}, {}, {2}}, options);
    const std::vector<MiniBatch> same = drain(as_read);
    expect_equal(same, wanted);
    EXPECT_TRUE(same[0].maps.empty());
  }
}

TEST(SequenceAugmentation, ImagesAndSequencesOfAnExampleHaveTheirOwnChanges) {
  const DatastorePtr images = std::make_shared<testing::MemoryStore>(kSequences, 5, 4, 3);
  const DatastorePtr both = combine({images, sequence_datastore(counted(2))});
  MiniBatchQueueOptions options = queue_options();
  options.augmentation.reflect_x = true;
  options.augmentation.translate_y = {-2, 2};
  MiniBatchQueue queue(both, {{3, 5, 4}, {2}}, options);
  const std::vector<MiniBatch> mixed = drain(queue);
  MiniBatchQueueOptions image_options = options;
  image_options.augmentation = {.reflect_x = true, .translate_y = {-2, 2}};
  MiniBatchQueue image_queue(images, {{3, 5, 4}}, image_options);
  const std::vector<MiniBatch> alone = drain(image_queue);
  ASSERT_EQ(mixed.size(), alone.size());
  const std::vector<Array> sequences = counted(2);
  for (size_t b = 0; b < mixed.size(); ++b) {
    EXPECT_EQ(mixed[b].input(0).bytes, alone[b].input(0).bytes);
    std::vector<float> wanted;
    for (const int64_t i : mixed[b].observations) {
      std::vector<float> own = sequences[static_cast<size_t>(i)].values;
      augment_sequence(options.augmentation, 7, mixed[b].epoch, i, {steps_of(i), 2, 0, steps_of(i)},
                       own.data(), 1);
      wanted.insert(wanted.end(), own.begin(), own.end());
    }
    EXPECT_EQ(copy_of<float>(mixed[b].input(1)), wanted);
  }
}

TEST(SequenceAugmentation, WhatTheDataDoNotHaveIsRefusedByName) {
  const auto refusal = [](const DatastorePtr& store, const Shape& input, const Augmentation& a) {
    MiniBatchQueueOptions options = queue_options();
    options.augmentation = a;
    return message_of<Error>([&] { MiniBatchQueue(store, {input}, options); });
  };
  const DatastorePtr sequences = sequence_datastore(counted(2));
  const DatastorePtr images = std::make_shared<testing::MemoryStore>(9, 5, 4, 3);
  const DatastorePtr tokens =
      sequence_datastore(std::vector<IntegerArray>(9, IntegerArray{{2}, {1, 2}}));
  const DatastorePtr arrays = array_datastore(ArrayBlock{9, {2}, std::vector<float>(18, 1)});
  EXPECT_EQ(refusal(sequences, {2}, {.translate_x = {0, 1}}),
            "[augmentation] translate_x is for images, but the observations (37 sequences with "
            "steps of 2 in memory) are sequences with steps of 2 floats");
  expect_says(refusal(sequences, {2}, {.reflect_y = true, .jitter = 1}), "reflect_y is for images");
  expect_says(refusal(images, {3, 5, 4}, {.jitter = 1}),
              "[augmentation] jitter is for sequences of numbers, but the observations (memory) "
              "are images");
  expect_says(refusal(images, {3, 5, 4}, {.time_mask = 2}), "time_mask is for sequences");
  expect_says(refusal(tokens, {}, {.scaling = 1}), "scaling is for sequences of numbers, but");
  expect_says(refusal(tokens, {}, {.scale = {1, 2}}), "scale is for images, but");
  expect_says(refusal(arrays, {2}, {.channel_mask = 1}), "channel_mask is for sequences");
  expect_says(refusal(sequences, {2}, {.jitter = -1}), "jitter is -1");
  expect_says(refusal(sequences, {2}, {.time_masks = 3}),
              "time_masks is given, but time_mask is 0");
}

}  // namespace
}  // namespace lockstep
