// For loops that look at memory again and again.
#pragma once

namespace lockstep {

// Tells the processor that this thread waits: its other thread gets the core meanwhile.
inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace lockstep
