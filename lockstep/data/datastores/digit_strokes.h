// Internal part of digits.cpp: the strokes of handwritten digits. Not for use outside
// lockstep/data.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::detail {

// A point of a stroke, in hundredths of the digit's height: x to the right, about 0 to 64, y down,
// 0 to 100. Strokes are smooth (Catmull and Rom 1974) except at corners.
struct StrokePoint {
  enum Kind : uint8_t { smooth, corner, end };  // end: the last point of its stroke
  int16_t x, y;
  Kind kind = smooth;
};

// One way to write a digit: its strokes, in order.
struct DigitVariant {
  uint8_t weight;  // frequency relative to the digit's other variants
  std::span<const StrokePoint> points;
};

std::span<const DigitVariant> digit_variants(int digit);

}  // namespace lockstep::detail
