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

}  // namespace lockstep
