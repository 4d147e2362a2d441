// Replaces lockstep/base/numeric/arithmetic.cpp: threads compute in the mode that they have
// inherited. Tests of the law that are linked with this file must fail.
#include "lockstep/base/numeric/arithmetic.h"

namespace lockstep {

OrdinaryArithmetic::OrdinaryArithmetic() : previous_(0), previous_x87_(0) {}
OrdinaryArithmetic::~OrdinaryArithmetic() = default;

void begin_ordinary_arithmetic() {}

ArithmeticMode::ArithmeticMode() : previous_(0) {}
ArithmeticMode::~ArithmeticMode() = default;
void ArithmeticMode::check() const {}

}  // namespace lockstep
