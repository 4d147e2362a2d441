// Named places where tests make things fail: a process that dies, hangs or throws just there.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep {

// What a test does at a place; `iteration` and `shard` where they are known there, else 0.
using FailPointHook = void (*)(const char* place, int64_t iteration, int64_t shard);

namespace detail {
inline std::atomic<FailPointHook> fail_point_hook{nullptr};
}

// Of this process; null: nothing fails. Thread-safe.
inline void set_fail_point_hook(FailPointHook hook) { detail::fail_point_hook.store(hook); }

// Costs a load where nothing is set.
inline void fail_point(const char* place, int64_t iteration = 0, int64_t shard = 0) {
  const FailPointHook hook = detail::fail_point_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook(place, iteration, shard);
}

}  // namespace lockstep
