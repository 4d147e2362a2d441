#include "lockstep/data/images/augment_sequence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/clones.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/kernels/elementwise/double_functions.h"

namespace lockstep {
namespace {

constexpr NumberRule jitter_rule{.min = 0, .max = 1e30};
constexpr NumberRule scaling_rule{.min = 0, .max = 1e6};
constexpr NumberRule fraction_rule{.min = 0, .max = 1, .min_excluded = true};
constexpr IntegerRule mask_rule{.min = 0, .max = int64_t{1} << 31};
constexpr IntegerRule masks_rule{.min = 1, .max = 1 << 16};

std::string text_of_number(int64_t value) { return std::to_string(value); }
std::string text_of_number(double value) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%g", value);
  return digits.data();
}

bool above(const IntegerRule&) { return false; }
bool above(const NumberRule& rule) { return rule.min_excluded; }

// Checks a field of a program as a job file's are checked.
template <class Number, class Rule>
void check_field(const char* name, Number value, const Rule& rule) {
  if (value >= rule.min && value <= rule.max && !(above(rule) && value == rule.min)) return;
  throw InvalidArgument("[augmentation] " + std::string(name) + " is " + text_of_number(value) +
                        ", but must be " + (above(rule) ? "> " : ">= ") + text_of_number(rule.min) +
                        " and <= " + text_of_number(rule.max));
}

// A field that says more about masks, without masks.
void check_masks(const char* field, bool given, const char* mask, int64_t longest) {
  if (!given || longest > 0) return;
  throw InvalidArgument("[augmentation] " + std::string(field) + " is given, but " + mask +
                            " is 0, so there are no masks",
                        "set " + std::string(mask) + " to the length of the longest mask");
}

void check_part(const SequencePart& part) {
  const bool fits = part.steps >= 0 && part.channels >= 0 && part.each >= 0 && part.first >= 0 &&
                    part.count >= 0 && part.first <= part.steps &&
                    part.count <= part.steps - part.first;
  if (fits) return;
  throw InvalidArgument("[augmentation] the steps from " + std::to_string(part.first) + ", " +
                        std::to_string(part.count) + " of them, are not in a sequence of " +
                        std::to_string(part.steps) + " steps of " + std::to_string(part.channels) +
                        " channels");
}

enum class Change : uint8_t { noise, factors, masks_of_steps, masks_of_channels };

// ---- Normal numbers ----

// Those made together.
constexpr int64_t kNormals = 256;

// Two standard normal numbers of each pair of words (Box and Muller 1958).
LOCKSTEP_FMA_CLONES void fill_with_normals(const uint32_t* words, int64_t pairs, double* normals) {
  using namespace kernels::in_double;
  for (int64_t i = 0; i < pairs; ++i) {
    const double u = (static_cast<double>(words[2 * i]) + 0.5) * 0x1p-32;  // in (0, 1)
    const Scaled s(u);
    const double log_u = __builtin_fma(s.n, 0.69314718055994531, logarithm_near_1(s.m - 1));
    const double radius = __builtin_sqrt(-2 * log_u);
    const uint32_t word = words[2 * i + 1];
    QuarterTurns angle(0);
    angle.n = word >> 30;
    angle.r = (static_cast<double>(word & 0x3fffffff) + 0.5) * 0x1p-30 - 0.5;
    normals[2 * i] = radius * angle.turned(1);
    normals[2 * i + 1] = radius * angle.turned(0);
  }
}

// The normal numbers of a stream from `first` on, at most kNormals of them.
class Normals {
 public:
  Normals(const RandomStream& stream, int64_t first, int64_t count) : skip_(first % 4) {
    const auto blocks = static_cast<size_t>((skip_ + count + 3) / 4);
    stream.blocks(static_cast<uint64_t>(first / 4), blocks, words_.data());
    fill_with_normals(words_.data(), static_cast<int64_t>(2 * blocks), normals_.data());
  }
  double operator[](int64_t i) const { return normals_[static_cast<size_t>(skip_ + i)]; }

 private:
  const int64_t skip_;
  std::array<uint32_t, kNormals + 4> words_;
  std::array<double, kNormals + 4> normals_;
};

// Calls body(first, count) for [first, end) in parts of at most kNormals.
template <class Body>
void in_parts(int64_t first, int64_t end, const Body& body) {
  for (int64_t i = first; i < end; i += kNormals) body(i, std::min(kNormals, end - i));
}

// ---- The changes ----

void scale_channels(double deviation, const RandomStream& stream, const SequencePart& part,
                    float* values) {
  in_parts(0, part.channels, [&](int64_t first, int64_t count) {
    const Normals normals(stream, first, count);
    std::array<double, kNormals> factors{};
    for (int64_t c = 0; c < count; ++c) {
      factors[static_cast<size_t>(c)] = std::fma(deviation, normals[c], 1.0);
    }
    for (int64_t t = 0; t < part.count; ++t) {
      float* to = values + (t * part.channels + first) * part.each;
      for (int64_t c = 0; c < count; ++c) {
        const double factor = factors[static_cast<size_t>(c)];
        for (int64_t k = 0; k < part.each; ++k, ++to) {
          *to = static_cast<float>(factor * static_cast<double>(*to));
        }
      }
    }
  });
}

// The noise of a value has the value's position in the whole sequence.
void add_jitter(double deviation, const RandomStream& stream, const SequencePart& part,
                float* values) {
  const int64_t step = part.channels * part.each, before = part.first * step;
  in_parts(before, before + part.count * step, [&](int64_t first, int64_t count) {
    const Normals normals(stream, first, count);
    float* const to = values + (first - before);
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<float>(std::fma(deviation, normals[i], static_cast<double>(to[i])));
    }
  });
}

// Mask number `mask` of [0, size).
IndexRange draw_mask(const RandomStream& stream, int64_t mask, int64_t longest, int64_t size) {
  const auto at = static_cast<uint64_t>(2 * mask);
  const int64_t count = stream.between(at, 0, std::min(longest, size));
  return {stream.between(at + 1, 0, size - count), count};
}

void mask_steps(const Augmentation& a, const RandomStream& stream, const SequencePart& part,
                float* values) {
  const double share = std::floor(a.time_mask_fraction * static_cast<double>(part.steps));
  const int64_t longest = std::min(a.time_mask, static_cast<int64_t>(share));
  for (int64_t i = 0; i < a.time_masks; ++i) {
    const IndexRange mask = draw_mask(stream, i, longest, part.steps);
    const int64_t first = std::max(mask.first, part.first);
    const int64_t end = std::min(mask.end(), part.first + part.count);
    if (first >= end) continue;
    const int64_t step = part.channels * part.each;
    std::fill_n(values + (first - part.first) * step, (end - first) * step, 0.0f);
  }
}

void mask_channels(const Augmentation& a, const RandomStream& stream, const SequencePart& part,
                   float* values) {
  for (int64_t i = 0; i < a.channel_masks; ++i) {
    const IndexRange mask = draw_mask(stream, i, a.channel_mask, part.channels);
    for (int64_t t = 0; t < part.count; ++t) {
      std::fill_n(values + (t * part.channels + mask.first) * part.each, mask.count * part.each,
                  0.0f);
    }
  }
}

}  // namespace

void visit_sequence_fields(Augmentation& a, FieldVisitor& v) {
  v.number("jitter", a.jitter,
           "sequences: standard deviation of the normal noise that is added to each value, in the "
           "units of the data",
           jitter_rule);
  v.number("scaling", a.scaling,
           "sequences: standard deviation of the normal factor, with mean 1, of each channel",
           scaling_rule);
  v.integer("time_mask", a.time_mask,
            "sequences: most steps of a mask, a run of steps that become 0; 0: no masks",
            mask_rule);
  v.integer("time_masks", a.time_masks, "sequences: masks of steps", masks_rule);
  v.number("time_mask_fraction", a.time_mask_fraction,
           "sequences: largest fraction of a sequence's steps in one mask", fraction_rule);
  v.integer("channel_mask", a.channel_mask,
            "sequences: most channels of a mask, neighbors that become 0 in all steps; 0: no masks",
            mask_rule);
  v.integer("channel_masks", a.channel_masks, "sequences: masks of channels", masks_rule);
}

void check_sequence_fields(const Augmentation& a) {
  check_field("jitter", a.jitter, jitter_rule);
  check_field("scaling", a.scaling, scaling_rule);
  check_field("time_mask", a.time_mask, mask_rule);
  check_field("time_masks", a.time_masks, masks_rule);
  check_field("time_mask_fraction", a.time_mask_fraction, fraction_rule);
  check_field("channel_mask", a.channel_mask, mask_rule);
  check_field("channel_masks", a.channel_masks, masks_rule);
  const Augmentation none;
  check_masks("time_masks", a.time_masks != none.time_masks, "time_mask", a.time_mask);
  check_masks("time_mask_fraction", a.time_mask_fraction != none.time_mask_fraction, "time_mask",
              a.time_mask);
  check_masks("channel_masks", a.channel_masks != none.channel_masks, "channel_mask",
              a.channel_mask);
}

std::string Augmentation::sequence_change() const {
  if (jitter > 0) return "jitter";
  if (scaling > 0) return "scaling";
  if (time_mask > 0) return "time_mask";
  return channel_mask > 0 ? "channel_mask" : "";
}

void augment_sequence(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                      int64_t index_in_listing, const SequencePart& part, float* values,
                      int64_t input) {
  check_sequence_fields(augmentation);
  check_part(part);
  if (part.count == 0 || part.channels == 0 || part.each == 0) return;
  const ArithmeticMode mode;  // the same bits on threads with and without subnormal numbers
  const auto stream = [&](Change change) {
    return RandomStream({.seed = seed,
                         .use = RandomUse::augment,
                         .a = static_cast<uint64_t>(epoch),
                         .b = static_cast<uint64_t>(index_in_listing),
                         .c = (uint64_t{1} << 63) + 4 * static_cast<uint64_t>(input) +
                              static_cast<uint64_t>(change)});
  };
  const Augmentation& a = augmentation;
  if (a.scaling > 0) scale_channels(a.scaling, stream(Change::factors), part, values);
  if (a.jitter > 0) add_jitter(a.jitter, stream(Change::noise), part, values);
  if (a.time_mask > 0) mask_steps(a, stream(Change::masks_of_steps), part, values);
  if (a.channel_mask > 0) mask_channels(a, stream(Change::masks_of_channels), part, values);
}

}  // namespace lockstep
