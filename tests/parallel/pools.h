// Helpers for tests of pools.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "lockstep/parallel/pool/pool.h"
#include "tests/base/waiting.h"

namespace lockstep::testing_pools {

inline int64_t add(int64_t a, int64_t b) { return a + b; }

inline void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Sleeps until the time is over or the task is cancelled.
inline constexpr auto doze = [](double seconds) {
  for (const TimeLimit limit(seconds); !limit.reached();) {
    check_cancelled();
    sleep_seconds(0.002);
  }
};

using testing::await;
using testing::kLimit;

inline bool whole(const Pool& pool) {
  const auto workers = pool.workers();
  return std::all_of(workers.begin(), workers.end(), [](const auto& w) { return w.ready; });
}

template <class E, class R>
std::string failure_of(const Future<R>& future) {
  try {
    future.get();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("something else: ") + e.what();
  }
  return "(nothing was thrown)";
}

}  // namespace lockstep::testing_pools
