// Fills memory with patterns that must not affect results, to find reads of unwritten memory.
//
// For tests. While a pattern is set, every block of memory is filled when it is allocated. A plan
// on the CPU also fills each buffer when its lifetime begins, the gradients before each backward
// run, and the scratchpad before each pass. The plan throws Error if a pass has written beyond its
// operands. Results must be bit-identical to those without a pattern: a pass writes every element
// of its results, including the padding of blocked layouts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// not_a_number: NaN in every float type. huge: about 3e38 in f32 and bf16, NaN in f16.
enum class Poison : uint8_t { none, not_a_number, huge };

namespace detail {
extern std::atomic<Poison> present_poison;
}

// The pattern of the whole process, initially `none`. Thread-safe.
inline Poison poison() { return detail::present_poison.load(std::memory_order_relaxed); }

// Fills host memory with the current pattern, if one is set. Thread-safe.
void fill_with_poison(void* memory, size_t bytes);

// Sets a pattern for the lifetime of the object. Objects may nest. While one is created or
// destroyed, no other thread may allocate memory or run a plan.
class Poisoned {
 public:
  explicit Poisoned(Poison pattern);
  ~Poisoned();
  Poisoned(const Poisoned&) = delete;
  Poisoned& operator=(const Poisoned&) = delete;

 private:
  const Poison before_;
};

}  // namespace lockstep
