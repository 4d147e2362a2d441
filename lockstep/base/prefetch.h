// Cache lines that are needed soon.
#pragma once

namespace lockstep {

// Brings the cache line of an address into this core's caches, as the only copy, so that a write
// does not wait for another core that has read the line. Any address is allowed. (GCC's
// __builtin_prefetch has no such instruction without an option for newer processors; older ones
// execute this one as a prefetch for reading or as nothing.)
inline void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace lockstep
