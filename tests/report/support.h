// What tests of this folder have in common.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "lockstep/base/time_limit.h"

namespace lockstep::testing {

// Whether a condition holds within these seconds. Another thread makes it true.
inline bool within(double seconds, const std::function<bool()>& holds) {
  for (const TimeLimit limit(seconds); !limit.reached();) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return holds();
}

}  // namespace lockstep::testing
