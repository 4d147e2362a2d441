// Noise on input images: part of the task (denoising), or a harder one (robustness).
#pragma once

#include <cstdint>

#include "lockstep/base/fields.h"

namespace lockstep {

// Put on inputs while training, drawn anew every epoch, and in validation and tests, drawn once;
// never on targets.
struct InputNoise {
  // Share of elements (a pixel's channels one by one) that become 0 or 255, each half of the time.
  double salt_and_pepper = 0;

  void visit(FieldVisitor& v);
  // Whether anything can change.
  bool any() const { return salt_and_pepper > 0; }
  friend bool operator==(const InputNoise&, const InputNoise&) = default;
};

// The epoch that validation and tests draw with: none of training's.
inline constexpr int64_t fixed_noise_epoch = -1;

// Changes `count` bytes in place, for one use of one observation: a function of its arguments alone
// (RandomUse::noise, key a = epoch, b = index in the listing; position = element, channel by
// channel). Throws InvalidArgument for a share outside [0, 1]. Thread-safe.
void add_noise(const InputNoise& noise, uint64_t seed, int64_t epoch, int64_t index_in_listing,
               uint8_t* pixels, int64_t count);

}  // namespace lockstep
