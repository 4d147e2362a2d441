// Limits on waiting: nothing in Lockstep waits for ever.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

namespace lockstep {

// The moment until which something may take. A value; thread-safe.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // From now on; what is negative has passed, what is not a number too.
  explicit TimeLimit(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(clamped(seconds)))) {}

  bool reached() const { return Clock::now() >= end_; }
  // Seconds until then, at least 0.
  double left() const {
    return std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count());
  }
  // left() for poll(): in milliseconds, rounded up, at most an hour.
  int milliseconds_left() const {
    return static_cast<int>(std::ceil(std::min(left(), 3600.0) * 1000));
  }
  // Seconds since then, at least 0.
  double late() const {
    return std::max(0.0, std::chrono::duration<double>(Clock::now() - end_).count());
  }

 private:
  // A century is long enough, and stays within the clock's range.
  static double clamped(double seconds) { return seconds > 0 ? std::min(seconds, 3e9) : 0; }

  Clock::time_point end_;
};

}  // namespace lockstep
