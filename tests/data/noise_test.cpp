#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/images/augmentation.h"

namespace lockstep {
namespace {

std::vector<uint8_t> noisy(double share, int64_t count, uint64_t seed = 1, int64_t epoch = 0,
                           int64_t index = 0) {
  std::vector<uint8_t> pixels(static_cast<size_t>(count), 100);
  add_noise({.salt_and_pepper = share}, seed, epoch, index, pixels.data(), count);
  return pixels;
}

TEST(SaltAndPepper, ChangesTheShareHalfToEachEnd) {
  constexpr int64_t kCount = 400'000;
  int64_t salt = 0, pepper = 0;
  for (uint8_t v : noisy(0.1, kCount)) {
    salt += v == 255;
    pepper += v == 0;
    EXPECT_TRUE(v == 0 || v == 100 || v == 255);
  }
  // Four standard deviations of a binomial count.
  EXPECT_NEAR(static_cast<double>(salt), 0.05 * kCount, 4 * 138);
  EXPECT_NEAR(static_cast<double>(pepper), 0.05 * kCount, 4 * 138);
}

TEST(SaltAndPepper, IsAFunctionOfItsKeyAndThePlace) {
  const auto base = noisy(0.3, 1000);
  EXPECT_EQ(noisy(0.3, 1000), base);
  for (const auto& other : {noisy(0.3, 1000, 2), noisy(0.3, 1000, 1, 1), noisy(0.3, 1000, 1, 0, 1),
                            noisy(0.3, 1000, 1, fixed_noise_epoch)}) {
    EXPECT_NE(other, base);
  }
  // Sizes that are not a multiple of a block of random words.
  for (int64_t count : {0, 1, 2, 3, 5, 7}) {
    EXPECT_EQ(noisy(0.3, count), std::vector<uint8_t>(base.begin(), base.begin() + count));
  }
}

TEST(SaltAndPepper, NothingAndAllAreExact) {
  EXPECT_EQ(noisy(0, 500), std::vector<uint8_t>(500, 100));
  const auto all = noisy(1, 5000);
  EXPECT_EQ(std::set<uint8_t>(all.begin(), all.end()), (std::set<uint8_t>{0, 255}));
}

TEST(SaltAndPepper, SharesThatCannotBeAreRefused) {
  for (double share : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(noisy(share, 4), InvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep
