// Binary PNM: correct pixels from valid files, DataError naming the file from all others.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/images/image.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using Bytes = std::vector<std::byte>;

Bytes file(const std::string& header, const std::vector<int>& values) {
  Bytes bytes;
  for (const char c : header) bytes.push_back(static_cast<std::byte>(c));
  for (const int v : values) bytes.push_back(static_cast<std::byte>(v));
  return bytes;
}

Image decode(const std::string& header, const std::vector<int>& values) {
  return decode_image(file(header, values), "a/x.pnm");
}

void expect_refused(const std::string& header, const std::vector<int>& values,
                    const std::string& why) {
  const std::string message = message_of<DataError>([&] { decode(header, values); });
  EXPECT_NE(message.find("a/x.pnm"), std::string::npos) << message;
  EXPECT_NE(message.find(why), std::string::npos) << message;
}

TEST(Pnm, EightBitsStayAsTheyAre) {
  EXPECT_EQ(decode("P5\n3 2\n255\n", {0, 1, 127, 128, 254, 255}),
            (Image{2, 3, 1, {0, 1, 127, 128, 254, 255}}));
  EXPECT_EQ(decode("P6 1 2 255 ", {1, 2, 3, 250, 251, 252}),
            (Image{2, 1, 3, {1, 2, 3, 250, 251, 252}}));
  EXPECT_EQ(decode("P5 1 1 255\n", {'#'}), (Image{1, 1, 1, {'#'}}));
}

TEST(Pnm, CommentsAndAnyWhiteSpaceStandBetweenTheNumbers) {
  const Image expected{1, 2, 1, {7, 9}};
  EXPECT_EQ(decode("P5# 9 9 9\n#\n  2\t\r\n# height\n1\v255\r", {7, 9}), expected);
  EXPECT_EQ(decode("P5 2#glued\n1\n255\n", {7, 9}), expected);
}

TEST(Pnm, OtherLargestValuesAreScaledToTheNearest) {
  for (const int max : {1, 2, 3, 100, 254, 256, 1000, 4095, 65535}) {
    std::vector<int> values;
    std::vector<uint8_t> expected;
    for (int v = 0; v <= max; v += max > 1000 ? 97 : 1) {
      if (max > 255) values.push_back(v >> 8);
      values.push_back(v & 255);
      // The nearest value, found by comparing distances. Halves round up.
      int best = 0;
      for (int c = 0; c <= 255; ++c) {
        if (std::abs(v * 255 - c * max) <= std::abs(v * 255 - best * max)) best = c;
      }
      expected.push_back(static_cast<uint8_t>(best));
    }
    const auto n = static_cast<int64_t>(expected.size());
    const std::string header = "P5 " + std::to_string(n) + " 1 " + std::to_string(max) + "\n";
    EXPECT_EQ(decode(header, values), (Image{1, n, 1, expected})) << max;
  }
}

TEST(Pnm, BitmapsArePackedByRow) {
  EXPECT_EQ(decode("P4 10 2\n", {0b10100000, 0b01000000, 0b00000001, 0b10111111}),
            (Image{2, 10, 1, {0,   255, 0,   255, 255, 255, 255, 255, 255, 0,
                              255, 255, 255, 255, 255, 255, 255, 0,   0,   255}}));
  EXPECT_EQ(decode("P4 1 1\n", {0x80}), (Image{1, 1, 1, {0}}));
}

TEST(Pnm, DamageIsRefusedAndNamed) {
  expect_refused("P5 2 2 255\n", {1, 2, 3}, "requires 4 bytes of pixels, but there are 3");
  expect_refused("P5 2 2 255\n", {1, 2, 3, 4, 5}, "but there are 5");
  expect_refused("P6 2 2 65535\n", {1, 2, 3}, "requires 24 bytes");
  expect_refused("P5 2 1 100\n", {1, 101}, "byte 12 of 13: a value of 101, but the largest is 100");
  expect_refused("P5 1 1 0\n", {0}, "1 to 65535");
  expect_refused("P5 1 1 65536\n", {0, 0}, "1 to 65535");
  expect_refused("P5 -1 1 255\n", {0}, "no valid number of columns");
  expect_refused("P5 1 1 255", {}, "no white space");
  expect_refused("P5 1 # the file ends in a comment", {}, "no valid number of rows");
  expect_refused("P5 0 1 255\n", {}, "no pixels");
  expect_refused("P2 1 1 255\n7\n", {}, "type P2");
  expect_refused("P7\nWIDTH 1\n", {}, "type P7");
}

TEST(Pnm, WhiteSpaceMayFollow) {
  EXPECT_EQ(decode("P5 2 1 255\n", {1, 2, '\n'}), (Image{1, 2, 1, {1, 2}}));
  expect_refused("P5 2 1 255\n", {1, 2, '\n', 3}, "but there are 4");
}

TEST(Pnm, HostileSizesAreRefusedBeforeMemoryIsTaken) {
  expect_refused("P6 16385 1 255\n", {}, "too large");
  expect_refused("P6 99999999999999999999999999 1 255\n", {}, "too large");
  expect_refused("P6 16384 16384 65535\n", {1}, "but there are 1");
}

TEST(Pnm, EveryTruncationIsRefused) {
  const Bytes good = file("P6 # c\n2 3\n255\n", std::vector<int>(18, 35));
  ASSERT_EQ(decode_image(good, "x").pixels.size(), 18u);
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_THROW(decode_image(std::span(good).first(n), "x"), DataError) << n;
  }
}

TEST(Pnm, TextThatOnlyBeginsAlikeIsNotAPnm) {
  expect_refused("P5abc", {}, "not an image of a known format");
  expect_refused("P5", {}, "not an image of a known format");
}

}  // namespace
}  // namespace lockstep
