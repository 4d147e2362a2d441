#include "lockstep/runs/sweeps/methods/sobol.h"

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"

namespace lockstep {
namespace {

constexpr int bits = 32;

// A primitive polynomial of degree s with the inner coefficients a, and the first s odd numbers m.
struct Direction {
  int s;
  uint32_t a;
  std::array<uint32_t, 7> m;
};

// Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections", SIAM J. Sci.
// Comput. 30 (2008): the first lines of new-joe-kuo-6. Dimension 0 has no polynomial.
constexpr std::array<Direction, sobol_dimensions - 1> directions{{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
}};

std::array<uint32_t, bits> direction_numbers(size_t dimension) {
  std::array<uint32_t, bits> v{};
  if (dimension == 0) {
    for (int i = 0; i < bits; ++i) v[static_cast<size_t>(i)] = uint32_t{1} << (bits - 1 - i);
    return v;
  }
  const Direction& d = directions[dimension - 1];
  for (int i = 0; i < bits; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i < d.s) {
      v[at] = d.m[at] << (bits - 1 - i);
      continue;
    }
    const auto s = static_cast<size_t>(d.s);
    v[at] = v[at - s] ^ (v[at - s] >> d.s);
    for (int k = 1; k < d.s; ++k) {
      if ((d.a >> (d.s - 1 - k)) & 1) v[at] ^= v[at - static_cast<size_t>(k)];
    }
  }
  return v;
}

}  // namespace

uint32_t sobol_bits(size_t dimension, uint32_t index) {
  if (dimension >= sobol_dimensions) {
    throw InvalidArgument("[sobol] dimension " + std::to_string(dimension) + " of " +
                          std::to_string(sobol_dimensions));
  }
  const auto v = direction_numbers(dimension);
  uint32_t x = 0;
  for (size_t i = 0; i < bits; ++i) {
    if ((index >> i) & 1) x ^= v[i];
  }
  return x;
}

double scrambled_sobol(uint64_t seed, size_t dimension, uint32_t index) {
  const uint32_t x = sobol_bits(dimension, index);
  const RandomStream stream({.seed = seed, .use = sweep_draws, .a = 1, .b = dimension});
  uint32_t scrambled = 0;
  for (int bit = 0; bit < bits; ++bit) {
    // The bits before this one, after a leading 1 that marks their number.
    const uint64_t before = (uint64_t{1} << bit) | (bit == 0 ? 0 : uint64_t{x} >> (bits - bit));
    const uint32_t flip = stream.bits(before) & 1;
    scrambled |= (((x >> (bits - 1 - bit)) & 1) ^ flip) << (bits - 1 - bit);
  }
  return (double(scrambled) + 0.5) / 4294967296.0;
}

}  // namespace lockstep
