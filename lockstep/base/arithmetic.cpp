#include "lockstep/base/arithmetic.h"

#include <immintrin.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kRounding = 0x6000;
constexpr unsigned kFixed = kFlushToZero | kDenormalsAreZero | kRounding;
constexpr unsigned kWanted = kFlushToZero | kDenormalsAreZero;  // rounding 0: to nearest

}  // namespace

ArithmeticMode::ArithmeticMode() : previous_(_mm_getcsr()) {
  _mm_setcsr((previous_ & ~kFixed) | kWanted);
}

ArithmeticMode::~ArithmeticMode() { _mm_setcsr(previous_); }

void ArithmeticMode::check() const {
  if ((_mm_getcsr() & kFixed) != kWanted) {
    throw InternalError("[training] rounding or flush-to-zero was changed while computing");
  }
}

}  // namespace lockstep
