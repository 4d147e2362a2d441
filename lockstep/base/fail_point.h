// Named places where tests make things fail: a process that dies, hangs or throws just there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// What a test does at a place; `iteration` and `shard` where they are known there, else 0.
using FailPointHook = void (*)(const char* place, int64_t iteration, int64_t shard);

// What a test does to data at a place, as a fault of hardware would.
using CorruptionHook = void (*)(const char* place, int64_t iteration, int64_t shard, void* data,
                                size_t bytes);

namespace detail {
inline std::atomic<FailPointHook> fail_point_hook{nullptr};
inline std::atomic<CorruptionHook> corruption_hook{nullptr};
}  // namespace detail

// Of this process; null: nothing fails. Thread-safe.
inline void set_fail_point_hook(FailPointHook hook) { detail::fail_point_hook.store(hook); }

// Costs a load where nothing is set.
inline void fail_point(const char* place, int64_t iteration = 0, int64_t shard = 0) {
  const FailPointHook hook = detail::fail_point_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook(place, iteration, shard);
}

inline void set_corruption_hook(CorruptionHook hook) { detail::corruption_hook.store(hook); }
inline bool corruption_is_set() {
  return detail::corruption_hook.load(std::memory_order_relaxed) != nullptr;
}

inline void corruption_point(const char* place, int64_t iteration, int64_t shard, void* data,
                             size_t bytes) {
  const CorruptionHook hook = detail::corruption_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook(place, iteration, shard, data, bytes);
}

}  // namespace lockstep
