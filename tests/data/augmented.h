// Augmented images, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lockstep/data/images/augmentation.h"
#include "lockstep/data/images/image.h"

namespace lockstep::testing {

// The image after a draw. Guards on both sides show writes outside.
inline Image augmented(const Image& source, const AugmentationDraw& draw) {
  std::vector<uint8_t> buffer(source.pixels.size() + 64, 77);
  augment_into(source, draw, buffer.data() + 32);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(buffer[i], 77);
    EXPECT_EQ(buffer[buffer.size() - 1 - i], 77);
  }
  Image result = source;
  result.pixels.assign(buffer.begin() + 32, buffer.end() - 32);
  return result;
}

}  // namespace lockstep::testing
