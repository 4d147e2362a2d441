// Waits until a word of memory changes, also between processes that share it (futex(2)). Unlike
// with a mutex, waiting and waking threads hold nothing, so a process that dies leaves nothing
// locked.
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/base/time_limit.h"

namespace lockstep {

// Sleeps while `word` is `value`, until wake_all() is called or the limit is reached. May return
// early, so the caller must check the word again. Thread-safe.
void wait_while(const std::atomic<uint32_t>& word, uint32_t value, const TimeLimit& limit);

// Wakes all threads of every process that wait for this word. Thread-safe.
void wake_all(std::atomic<uint32_t>& word);

}  // namespace lockstep
