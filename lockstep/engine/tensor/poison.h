// Memory filled with values that must not matter: finds what is read before it is written.
//
// For tests. While a pattern is set, every piece of memory is filled when it is handed out; a plan
// on the CPU also fills each buffer when its lifetime begins, the gradients before each backward
// run, and the scratchpad before each pass, and throws Error where a pass has written beyond its
// operands. Results must be those without a pattern, bit by bit: a pass writes all elements of what
// it writes, the filling of blocked layouts included.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// As floats of any width: not a number, or about 3e38.
enum class Poison : uint8_t { none, not_a_number, huge };

namespace detail {
extern std::atomic<Poison> present_poison;
}

// Of the whole process; `none` at first. Thread-safe.
inline Poison poison() { return detail::present_poison.load(std::memory_order_relaxed); }

// Fills host memory with the pattern that is set, where one is. Thread-safe.
void fill_with_poison(void* memory, size_t bytes);

// Sets a pattern while it lives. One at a time, while no other thread asks for memory or runs a
// plan.
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
