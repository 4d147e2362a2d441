// Functions with loops for the compiler to vectorize. They are compiled for several instruction
// sets, and one clone is chosen at program start. All clones give the same bits if the loops work
// element by element and without contraction.
#pragma once

// Sanitizers start after the resolvers that choose a clone have run. clang 14 has no clones. A test
// wants none.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(LOCKSTEP_WITHOUT_CLONES)
#define LOCKSTEP_HAS_CLONES 1
#define LOCKSTEP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
// For loops with __builtin_fma(), which calls the C library without the instruction.
#define LOCKSTEP_FMA_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOCKSTEP_CLONES
#define LOCKSTEP_FMA_CLONES
#endif

// Compiled separately in each clone of its callers.
#define LOCKSTEP_INLINE inline __attribute__((always_inline))

namespace lockstep {

// The clone that was chosen on this processor.
inline const char* target_of_clones() {
#if defined(LOCKSTEP_HAS_CLONES)
  if (__builtin_cpu_supports("avx512f")) return "avx512f";
  if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
  return "default";
}

// The same for LOCKSTEP_FMA_CLONES.
inline const char* target_of_fma_clones() {
#if defined(LOCKSTEP_HAS_CLONES)
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
#endif
  return "default";
}

}  // namespace lockstep
