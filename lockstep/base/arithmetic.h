// The floating-point mode that the law fixes.
#pragma once

namespace lockstep {

// While alive, this thread rounds to nearest and treats subnormal numbers as zero; restores the
// former mode. check() throws InternalError when something changed the mode meanwhile.
class ArithmeticMode {
 public:
  ArithmeticMode();
  ~ArithmeticMode();
  ArithmeticMode(const ArithmeticMode&) = delete;
  ArithmeticMode& operator=(const ArithmeticMode&) = delete;
  void check() const;

 private:
  unsigned previous_;
};

// While alive, this thread has the mode that programs begin with: it rounds to nearest, subnormal
// numbers count. A library that is preloaded, or the caller, may have set another. Restores the
// former mode.
class OrdinaryArithmetic {
 public:
  OrdinaryArithmetic();
  ~OrdinaryArithmetic();
  OrdinaryArithmetic(const OrdinaryArithmetic&) = delete;
  OrdinaryArithmetic& operator=(const OrdinaryArithmetic&) = delete;

 private:
  unsigned previous_;
  unsigned short previous_x87_;
};

// The same for a thread of Lockstep's own, until it ends: what it inherits does not matter.
void begin_ordinary_arithmetic();

}  // namespace lockstep
