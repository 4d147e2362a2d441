// The built-in digits: the same on every machine, ten classes, neither trivial nor too difficult.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

TEST(Digits, AllTenThousandHaveThePinnedBytes) {
  const DatastorePtr digits = builtin_digits();
  ASSERT_EQ(digits->size(), 10000);
  Digester digester;
  for (int64_t i = 0; i < digits->size(); ++i) {
    const Image image = read_image(*digits, i);
    ASSERT_EQ(image.height, 28);
    ASSERT_EQ(image.width, 28);
    ASSERT_EQ(image.channels, 1);
    digester.bytes(image.pixels.data(), image.pixels.size());
  }
  EXPECT_EQ(digester.finish().to_string(), "f32d578c261c898d90b6b8b53c71cceb");
}

TEST(Digits, AThousandOfEachInOrder) {
  const DatastorePtr digits = builtin_digits();
  EXPECT_EQ(count_each_label(*digits), std::vector<int64_t>(10, 1000));
  EXPECT_EQ(digits->name(3042), "3/042.png");
  EXPECT_EQ(digits->classes()[static_cast<size_t>(digits->label(3042))], "3");
  for (int64_t i = 1; i < digits->size(); ++i) ASSERT_LT(digits->name(i - 1), digits->name(i));
  EXPECT_THROW(digits->read(10000), InvalidArgument);
  EXPECT_THROW(digits->read(-1), InvalidArgument);
}

TEST(Digits, NoTwoAreAlikeAndEachHasInkInsideAndADarkRim) {
  const DatastorePtr digits = builtin_digits();
  std::set<std::string> seen;
  double rim = 0;
  for (int64_t i = 0; i < digits->size(); i += 7) {
    const Image image = read_image(*digits, i);
    seen.insert(digits->content_digest(i).to_string());
    int64_t bright = 0;
    for (size_t p = 0; p < image.pixels.size(); ++p) {
      bright += image.pixels[p] > 120;
      const size_t x = p % 28, y = p / 28;
      if (x == 0 || y == 0 || x == 27 || y == 27) rim += image.pixels[p];
    }
    EXPECT_GT(bright, 8) << digits->name(i);
    EXPECT_LT(bright, 350) << digits->name(i);
  }
  EXPECT_EQ(seen.size(), 1429u);
  EXPECT_LT(rim / (1429 * 108), 12);
}

TEST(Digits, TheMeanImagesTellMostApartButFarFromAll) {
  const DatastorePtr digits = builtin_digits();
  std::array<std::array<int64_t, 784>, 10> sums{};
  for (int64_t i = 0; i < digits->size(); i += 2) {
    const Image image = read_image(*digits, i);
    auto& sum = sums[static_cast<size_t>(digits->label(i))];
    for (size_t p = 0; p < 784; ++p) sum[p] += image.pixels[p];
  }
  int64_t right = 0, all = 0;
  for (int64_t i = 1; i < digits->size(); i += 10, ++all) {
    const Image image = read_image(*digits, i);
    size_t best = 0;
    int64_t nearest = std::numeric_limits<int64_t>::max();
    for (size_t c = 0; c < 10; ++c) {
      int64_t distance = 0;
      for (size_t p = 0; p < 784; ++p) {
        const int64_t d = image.pixels[p] - sums[c][p] / 500;
        distance += d * d;
      }
      if (distance < nearest) {
        nearest = distance;
        best = c;
      }
    }
    right += best == static_cast<size_t>(digits->label(i));
  }
  EXPECT_GT(right, all * 70 / 100);
  EXPECT_LT(right, all * 98 / 100);
}

TEST(Digits, AnExportedFolderHoldsTheSameImagesInTheSameOrder) {
  const DatastorePtr digits = builtin_digits();
  std::vector<int64_t> some;
  for (int64_t i = 0; i < digits->size(); i += 83) some.push_back(i);
  const DatastorePtr drawn = subset(digits, some);
  const testing::TemporaryFolder folder;
  export_as_folder(*drawn, folder.path);
  const DatastorePtr read = image_folder(folder.path);
  ASSERT_EQ(read->size(), drawn->size());
  EXPECT_EQ(read->classes(), drawn->classes());
  for (int64_t i = 0; i < read->size(); ++i) {
    ASSERT_EQ(read_image(*read, i), read_image(*drawn, i)) << read->name(i);
    ASSERT_EQ(read->label(i), drawn->label(i));
  }
  EXPECT_EQ(read->name(0), "0/00.png");
}

}  // namespace
}  // namespace lockstep
