#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/images/augmentation.h"

namespace lockstep {

void InputNoise::visit(FieldVisitor& v) {
  v.number("salt_and_pepper", salt_and_pepper,
           "fraction of input elements that are set to 0 or 255", {.min = 0, .max = 1});
}

void add_noise(const InputNoise& noise, uint64_t seed, int64_t epoch, int64_t index_in_listing,
               uint8_t* pixels, int64_t count, int64_t input) {
  if (!(noise.salt_and_pepper >= 0 && noise.salt_and_pepper <= 1)) {
    throw InvalidArgument("[noise] salt_and_pepper is " + std::to_string(noise.salt_and_pepper) +
                          ", but must be between 0 and 1");
  }
  if (!noise.any()) return;
  const RandomStream stream({.seed = seed,
                             .use = RandomUse::noise,
                             .a = static_cast<uint64_t>(epoch),
                             .b = static_cast<uint64_t>(index_in_listing),
                             .c = static_cast<uint64_t>(input)});
  // Of the 2^32 equally likely words, those below `pepper` mean 0, other words below `either` mean
  // 255.
  const auto either = static_cast<uint64_t>(std::ldexp(noise.salt_and_pepper, 32));
  const uint64_t pepper = either / 2;
  for (int64_t i = 0; i < count; i += 4) {
    const auto words = stream.block(static_cast<uint64_t>(i) / 4);
    for (int64_t k = 0; k < 4 && i + k < count; ++k) {
      const uint32_t word = words[static_cast<size_t>(k)];
      if (word < either) pixels[i + k] = word < pepper ? 0 : 255;
    }
  }
}

}  // namespace lockstep
