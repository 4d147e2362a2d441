// Named points in the code where tests inject failures: a process that dies, hangs or throws.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// Called at a named point. `iteration` and `shard` are 0 if they are not known there.
using FailPointHook = void (*)(const char* name, int64_t iteration, int64_t shard);

// Changes data at a named point, as a hardware fault would.
using CorruptionHook = void (*)(const char* name, int64_t iteration, int64_t shard, void* data,
                                size_t bytes);

namespace detail {
inline std::atomic<FailPointHook> fail_point_hook{nullptr};
inline std::atomic<CorruptionHook> corruption_hook{nullptr};
}  // namespace detail

// Sets the hook of this process. Null removes it. Thread-safe.
inline void set_fail_point_hook(FailPointHook hook) { detail::fail_point_hook.store(hook); }

// Costs one atomic load if no hook is set.
inline void fail_point(const char* name, int64_t iteration = 0, int64_t shard = 0) {
  const FailPointHook hook = detail::fail_point_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook(name, iteration, shard);
}

inline void set_corruption_hook(CorruptionHook hook) { detail::corruption_hook.store(hook); }
inline bool corruption_is_set() {
  return detail::corruption_hook.load(std::memory_order_relaxed) != nullptr;
}

inline void corruption_point(const char* name, int64_t iteration, int64_t shard, void* data,
                             size_t bytes) {
  const CorruptionHook hook = detail::corruption_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook(name, iteration, shard, data, bytes);
}

}  // namespace lockstep
