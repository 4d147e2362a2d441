// A hint to the processor for loops that poll memory.
#pragma once

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

}  // namespace lockstep
