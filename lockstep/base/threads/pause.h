// A hint to the processor for loops that poll memory.
#pragma once

#include <chrono>

namespace lockstep {

// Tells the processor that this thread is waiting, so that the core's other hardware thread can
// run.
inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls `ready` for as long as `time`. Returns whether it became true.
template <class Ready>
bool spin_until(const Ready& ready, std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_processor();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace lockstep
