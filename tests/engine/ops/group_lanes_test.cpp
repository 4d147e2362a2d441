// Group normalization of images in lanes beside the formulas in double.
#include "lockstep/engine/kernels/cpu/normalization/group_lanes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lockstep::kernels::cpu {
namespace {

std::vector<float> numbers(int64_t count, uint32_t seed, float offset) {
  std::vector<float> all(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (float& v : all) {
    state = state * 1664525u + 1013904223u;
    v = offset + static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
  }
  return all;
}

// Every result, in double.
struct Expected {
  std::vector<double> y, dx, dscale, dshift;

  Expected(const GroupLanes& p, const std::vector<float>& x, const std::vector<float>& dy,
           const std::vector<float>& scale, const std::vector<float>& shift)
      : y(x.size()),
        dx(x.size()),
        dscale(static_cast<size_t>(p.all_channels())),
        dshift(static_cast<size_t>(p.all_channels())) {
    const auto count = static_cast<double>(p.elements());
    for (int64_t n = 0; n < p.n; ++n) {
      for (int64_t g = 0; g < p.groups; ++g) {
        const auto each = [&](auto&& visit) {
          for (int64_t c = g * p.channels; c < (g + 1) * p.channels; ++c) {
            for (int64_t s = 0; s < p.space; ++s) {
              visit(static_cast<size_t>(c), static_cast<size_t>((c * p.space + s) * p.n + n));
            }
          }
        };
        double mean = 0, variance = 0, products = 0, sums = 0;
        each([&](size_t, size_t i) { mean += x[i] / count; });
        each([&](size_t, size_t i) { variance += (x[i] - mean) * (x[i] - mean) / count; });
        const double inverse = 1 / std::sqrt(variance + p.epsilon);
        each([&](size_t c, size_t i) {
          const double standard = (x[i] - mean) * inverse;
          y[i] = standard * scale[c] + shift[c];
          dscale[c] += dy[i] * standard;
          dshift[c] += dy[i];
          products += dy[i] * standard * scale[c] / count;
          sums += double{dy[i]} * scale[c] / count;
        });
        each([&](size_t c, size_t i) {
          const double standard = (x[i] - mean) * inverse;
          dx[i] = (double{dy[i]} * scale[c] - sums - standard * products) * inverse;
        });
      }
    }
  }
};

void expect_near(const std::vector<float>& found, const std::vector<double>& expected,
                 double tolerance, const char* what) {
  double error = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(size) + 1e-9) << what;
}

TEST(GroupLanes, AreThoseOfTheFormulas) {
  for (const int64_t n : {16, 48}) {
    for (const int64_t groups : {1, 3, 6}) {
      for (const int64_t space : {1, 5, 16}) {
        // A mean far from 0 loses digits of the elements themselves.
        for (const auto& [offset, tolerance] : {std::pair{0.0f, 1e-6}, {300.0f, 1e-4}}) {
          const GroupLanes p{n, groups, 6 / groups, space, 1e-5};
          SCOPED_TRACE(testing::Message() << n << " images, " << groups << " groups, space "
                                          << space << ", mean " << offset);
          const auto x = numbers(6 * space * n, 1, offset), dy = numbers(6 * space * n, 2, 0);
          const auto scale = numbers(6, 3, 1), shift = numbers(6, 4, 0);
          std::vector<float> y(x.size(), NAN), dx(x.size(), NAN), dscale(6, NAN), dshift(6, NAN);
          std::vector<GroupStatistics> statistics(static_cast<size_t>(n * groups));
          std::vector<double> sums(12, NAN);
          group_lanes_forward(p, x.data(), scale.data(), shift.data(), y.data(), statistics.data());
          group_lanes_backward(p, x.data(), dy.data(), scale.data(), statistics.data(), dx.data(),
                               dscale.data(), dshift.data(), sums.data());
          const Expected expected(p, x, dy, scale, shift);
          expect_near(y, expected.y, tolerance, "results");
          expect_near(dscale, expected.dscale, tolerance, "gradient of the scale");
          expect_near(dshift, expected.dshift, tolerance, "gradient of the shift");
          if (p.elements() > 2) expect_near(dx, expected.dx, 10 * tolerance, "gradient of images");
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::cpu
