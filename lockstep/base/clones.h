// Functions that are compiled for several instruction sets, of which one is chosen at start: loops
// for the compiler to vectorize. Element by element, without contraction, every one gives the same
// bits.
#pragma once

// Sanitizers start after the resolvers that choose a clone have run, and clang 14 has no clones.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LOCKSTEP_CLONES
#endif

// Compiled anew in each of its callers' clones.
#define LOCKSTEP_INLINE inline __attribute__((always_inline))
