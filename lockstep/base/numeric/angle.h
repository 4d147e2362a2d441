// Sine and cosine with the same bits on every processor and with every C library. Only + - * / and
// explicit fma on doubles are used, all correctly rounded. Thread-safe.
#pragma once

#include <cstdint>

namespace lockstep {

struct SineAndCosine {
  double sine = 0, cosine = 1;
};

// For an angle in radians within [-pi/4, pi/4], to about one unit in the last place.
SineAndCosine sine_and_cosine_near_zero(double radians);

// For `angle` plus `quarters` quarters of a turn.
SineAndCosine turned_by_quarters(SineAndCosine angle, int64_t quarters);

// For an angle in degrees within [-3600, 3600]. Exact at whole quarters of a turn.
SineAndCosine sine_and_cosine_of_degrees(double degrees);

// The tangent of an angle in degrees within (-90, 90).
double tangent_of_degrees(double degrees);

}  // namespace lockstep
