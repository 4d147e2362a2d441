// Sobol sequences (Sobol 1967) with the direction numbers of Joe and Kuo (2008), scrambled as by
// Owen (1995). Functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/random.h"

namespace lockstep {

// The purpose of all random numbers of sweeps; random.h has the others. `a` of the key: 0 random
// trials, 1 scrambling, 2 suggestions.
inline constexpr RandomUse sweep_draws{10};

inline constexpr size_t sobol_dimensions = 21;

// Coordinate `dimension` of point `index`, from 0, as a number of 32 bits. Point 0 is the origin.
uint32_t sobol_bits(size_t dimension, uint32_t index);

// The same in [0, 1), scrambled: each bit is flipped or not by a random number of the seed, the
// dimension and the bits before it. Every prefix of a power of two of points remains evenly
// distributed.
double scrambled_sobol(uint64_t seed, size_t dimension, uint32_t index);

}  // namespace lockstep
