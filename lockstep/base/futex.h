// Waiting for a word of memory to change, also between processes that share it (futex(2)). Unlike
// a mutex, nothing is held by who waits or wakes: a process that dies leaves nothing locked.
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/base/time_limit.h"

namespace lockstep {

// Sleeps while `word` is `value`, until somebody calls wake_all() or the limit is reached. Returns
// early now and then: look again. Thread-safe.
void wait_while(const std::atomic<uint32_t>& word, uint32_t value, const TimeLimit& limit);

// Wakes all who wait for this word, in every process. Thread-safe.
void wake_all(std::atomic<uint32_t>& word);

}  // namespace lockstep
