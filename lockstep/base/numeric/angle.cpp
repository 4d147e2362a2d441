#include "lockstep/base/numeric/angle.h"

#include <cmath>

namespace lockstep {

// Coefficients: FDLIBM 5.3, k_sin.c and k_cos.c.
SineAndCosine sine_and_cosine_near_zero(double x) {
  const double z = x * x;
  double s = std::fma(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08);
  s = std::fma(z, s, 2.75573137070700676789e-06);
  s = std::fma(z, s, -1.98412698298579493134e-04);
  s = std::fma(z, s, 8.33333333332248946124e-03);
  s = std::fma(z, s, -1.66666666666666324348e-01);
  double c = std::fma(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09);
  c = std::fma(z, c, -2.75573143513906633035e-07);
  c = std::fma(z, c, 2.48015872894767294178e-05);
  c = std::fma(z, c, -1.38888888888741095749e-03);
  c = std::fma(z, c, 4.16666666666666019037e-02);
  return {std::fma(x * z, s, x), std::fma(z, std::fma(z, c, -0.5), 1.0)};
}

SineAndCosine turned_by_quarters(SineAndCosine angle, int64_t quarters) {
  const auto [s, c] = angle;
  switch (quarters & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

SineAndCosine sine_and_cosine_of_degrees(double degrees) {
  constexpr double radians_per_degree = 1.74532925199432957692e-02;
  const double quarter = std::floor(degrees / 90 + 0.5);
  const double rest = std::fma(-90.0, quarter, degrees);  // within [-45, 45] up to rounding
  return turned_by_quarters(sine_and_cosine_near_zero(rest * radians_per_degree),
                            static_cast<int64_t>(quarter));
}

double tangent_of_degrees(double degrees) {
  const auto [sine, cosine] = sine_and_cosine_of_degrees(degrees);
  return sine / cosine;
}

}  // namespace lockstep
