// Damaged forms of image files.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image.h"

namespace lockstep::testing {

// Every damaged form of `good` must give an image or a DataError. Returns how many gave an image.
inline int64_t survivors_of_damage(const std::vector<std::byte>& good) {
  int64_t images = 0;
  const auto attempt = [&images](const std::vector<std::byte>& bytes, const std::string& what) {
    try {
      const Image image = decode_image(bytes, "x");
      EXPECT_EQ(image.pixels.size(),
                static_cast<size_t>(image.height * image.width * image.channels));
      ++images;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("x"), std::string::npos) << what;
    }
  };
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> bad = good;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      attempt(bad, "bit " + std::to_string(bit) + " of byte " + std::to_string(i));
    }
    for (const int value : {0x00, 0xff}) {
      std::vector<std::byte> bad = good;
      bad[i] = static_cast<std::byte>(value);
      if (bad != good) attempt(bad, "byte " + std::to_string(i));
    }
    std::vector<std::byte> shorter = good;
    shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
    attempt(shorter, "without byte " + std::to_string(i));
  }
  return images;
}

// The first bytes of a file, fewer than `most`, are not an image.
inline void expect_truncations_refused(const std::vector<std::byte>& good, size_t most) {
  ASSERT_FALSE(good.empty());
  for (size_t n = 0; n < most; ++n) {
    const std::vector<std::byte> bad(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_THROW(decode_image(bad, "x"), DataError) << n << " of " << good.size() << " bytes";
  }
}
inline void expect_truncations_refused(const std::vector<std::byte>& good) {
  expect_truncations_refused(good, good.size());
}

}  // namespace lockstep::testing
