#include "lockstep/base/numeric/arithmetic.h"

#include <immintrin.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kRounding = 0x6000;
constexpr unsigned kFixed = kFlushToZero | kDenormalsAreZero | kRounding;
constexpr unsigned kWanted = kFlushToZero | kDenormalsAreZero;  // rounding 0: to nearest

constexpr unsigned short kX87Rounding = 0x0c00;

unsigned short x87_mode() {
  unsigned short mode = 0;
  asm volatile("fnstcw %0" : "=m"(mode));
  return mode;
}

void set_x87_mode(unsigned short mode) { asm volatile("fldcw %0" : : "m"(mode)); }

}  // namespace

OrdinaryArithmetic::OrdinaryArithmetic() : previous_(_mm_getcsr()), previous_x87_(x87_mode()) {
  begin_ordinary_arithmetic();
}

OrdinaryArithmetic::~OrdinaryArithmetic() {
  _mm_setcsr(previous_);
  set_x87_mode(previous_x87_);
}

void begin_ordinary_arithmetic() {
  _mm_setcsr(_mm_getcsr() & ~kFixed);
  set_x87_mode(static_cast<unsigned short>(x87_mode() & ~kX87Rounding));
}

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
