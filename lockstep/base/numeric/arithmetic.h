// Floating-point modes of threads.
#pragma once

namespace lockstep {

// The mode of all training arithmetic. While it lives, this thread rounds to nearest and treats
// subnormal numbers as zero. The destructor restores the former mode. check() throws InternalError
// if the mode has been changed meanwhile.
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

// The mode in which programs start: round to nearest, with subnormal numbers. While it lives, this
// thread has that mode, even if a preloaded library or the caller has set another one. The
// destructor restores the former mode.
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

// Sets the same mode for a thread of the library until it ends, because threads inherit the mode.
void begin_ordinary_arithmetic();

}  // namespace lockstep
