#include "lockstep/base/numeric/arithmetic.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <atomic>
#include <cfenv>
#include <limits>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {
namespace {

// The processor's results for a third, and for half the smallest normal number.
float third() {
  volatile float one = 1, three = 3;
  return one / three;
}
float subnormal() {
  volatile float smallest = std::numeric_limits<float>::min(), half = 0.5f;
  return smallest * half;
}

TEST(ArithmeticMode, RoundsToNearestAndFlushesWhateverTheCallerHad) {
  const float nearest = third();
  ASSERT_GT(subnormal(), 0);
  std::fesetround(FE_DOWNWARD);
  ASSERT_NE(third(), nearest);
  {
    const ArithmeticMode mode;
    EXPECT_EQ(third(), nearest);
    EXPECT_EQ(subnormal(), 0);
    volatile float tiny = std::numeric_limits<float>::denorm_min(), large = 1e30f;
    EXPECT_EQ(tiny * large, 0) << "subnormal inputs count as zero";
    EXPECT_NO_THROW(mode.check());
  }
  EXPECT_NE(third(), nearest) << "the caller's mode comes back";
  EXPECT_GT(subnormal(), 0);
  std::fesetround(FE_TONEAREST);
}

TEST(ArithmeticMode, NoticesWhenSomethingChangesIt) {
  for (const unsigned bit : {0x8000u, 0x0040u, 0x2000u, 0x4000u}) {
    const ArithmeticMode mode;
    const unsigned fixed = _mm_getcsr();
    _mm_setcsr(fixed ^ bit);
    EXPECT_THROW(mode.check(), InternalError) << bit;
    _mm_setcsr(fixed);
    EXPECT_NO_THROW(mode.check());
  }
}

TEST(ArithmeticMode, FlagsOfPastOperationsAreNotAChange) {
  const ArithmeticMode mode;
  volatile float zero = 0, one = 1;
  volatile float infinite = one / zero;
  EXPECT_GT(infinite, 0);
  EXPECT_NO_THROW(mode.check());
}

TEST(ArithmeticMode, BelongsToItsThread) {
  const ArithmeticMode mode;
  float elsewhere = 0;
  std::thread([&] {
    std::fesetround(FE_DOWNWARD);
    elsewhere = third();
  }).join();
  EXPECT_NO_THROW(mode.check());
  EXPECT_NE(elsewhere, third());
}

TEST(OrdinaryArithmetic, IsThatOfAProgramThatBeginsWhateverTheCallerHad) {
  const float nearest = third();
  std::fesetround(FE_UPWARD);
  const unsigned before = _mm_getcsr() | 0x8040;  // subnormal numbers are zero
  _mm_setcsr(before);
  {
    const OrdinaryArithmetic ordinary;
    EXPECT_EQ(third(), nearest);
    EXPECT_GT(subnormal(), 0);
    EXPECT_EQ(std::fegetround(),
              FE_TONEAREST);  // the rounding of the x87, which fegetround() reports
  }
  EXPECT_EQ(_mm_getcsr() & 0xe040, before & 0xe040);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  // Lockstep's threads do not inherit the mode.
  int rounding = -1;
  bool counts = false;
  quiet_thread([&] {
    rounding = std::fegetround();
    counts = subnormal() >
             0;  // computed here, because a comparison in the other mode would treat it as zero
  }).join();
  EXPECT_EQ(rounding, FE_TONEAREST);
  EXPECT_TRUE(counts);
  std::atomic<int> wrong{0};
  ThreadPool pool(3);
  pool.run([&](int thread) { wrong += thread > 0 && std::fegetround() != FE_TONEAREST; });
  EXPECT_EQ(wrong, 0);
  std::fesetround(FE_TONEAREST);
  _mm_setcsr(_mm_getcsr() & ~0x8040u);
}

}  // namespace
}  // namespace lockstep
