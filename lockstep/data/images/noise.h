// Noise on input images, for denoising tasks or for robustness.
#pragma once

#include <cstdint>

#include "lockstep/base/fields.h"

namespace lockstep {

// Noise for inputs, never for targets. Training draws it again in every epoch. Validation and tests
// draw it once.
struct InputNoise {
  // Share of elements (each channel of a pixel separately) that become 0 or 255, with equal
  // probability.
  double salt_and_pepper = 0;

  void visit(FieldVisitor& v);
  // Whether any change is possible.
  bool any() const { return salt_and_pepper > 0; }
  friend bool operator==(const InputNoise&, const InputNoise&) = default;
};

// The epoch number for draws in validation and tests, which is not an epoch of training.
inline constexpr int64_t fixed_noise_epoch = -1;

// Changes `count` bytes in place for one use of one observation: a function of its arguments only
// (RandomUse::noise, key a = epoch, b = index in the listing; position = element, channel by
// channel). Throws InvalidArgument for a share outside [0, 1]. Thread-safe.
void add_noise(const InputNoise& noise, uint64_t seed, int64_t epoch, int64_t index_in_listing,
               uint8_t* pixels, int64_t count);

}  // namespace lockstep
