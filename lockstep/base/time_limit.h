// Deadlines: every wait in Lockstep has one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

namespace lockstep {

// A deadline on the steady clock. A value type; thread-safe.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // The deadline is `seconds` from now. Zero, a negative number or NaN has already passed.
  explicit TimeLimit(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(clamped(seconds)))) {}

  bool reached() const { return Clock::now() >= end_; }
  // Seconds until the deadline, at least 0.
  double left() const {
    return std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count());
  }
  // left() in milliseconds for poll(), rounded up, at most one hour.
  int milliseconds_left() const {
    return static_cast<int>(std::ceil(std::min(left(), 3600.0) * 1000));
  }
  // Seconds since the deadline, at least 0.
  double late() const {
    return std::max(0.0, std::chrono::duration<double>(Clock::now() - end_).count());
  }

 private:
  // The maximum of 3e9 seconds (a century) stays within the clock's range.
  static double clamped(double seconds) { return seconds > 0 ? std::min(seconds, 3e9) : 0; }

  Clock::time_point end_;
};

}  // namespace lockstep
