// Sequences of 1 to 29 steps for the tests of trainings.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/data/datastores/datastores.h"

namespace lockstep::testing {

inline int64_t signal_steps(int64_t i) { return 1 + i * 13 % 29; }

// `count` sequences of signal_steps() steps.
inline std::vector<Array> signals(int64_t count, int64_t channels) {
  std::vector<Array> all;
  for (int64_t i = 0; i < count; ++i) {
    Array one{{signal_steps(i), channels}, {}};
    for (int64_t k = 0; k < one.shape.elements(); ++k) {
      one.values.push_back(0.1f * static_cast<float>((k * 7 + i * 5) % 23) - 1);
    }
    all.push_back(std::move(one));
  }
  return all;
}

// A class of four for each step of these sequences.
inline StepLabels signal_tags(int64_t count) {
  StepLabels tags{.classes = {"a", "b", "c", "d"}};
  for (int64_t i = 0; i < count; ++i) {
    tags.labels.emplace_back();
    for (int64_t t = 0; t < signal_steps(i); ++t) {
      tags.labels.back().push_back(static_cast<int32_t>((i + t * t) % 4));
    }
  }
  return tags;
}

}  // namespace lockstep::testing
