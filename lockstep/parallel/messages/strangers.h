// Counts strangers on the control channel by its failed handshakes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

// A failed handshake does not identify its sender, which may be a worker that dies or is slow while
// it starts. So handshakes are counted while no worker starts, less one for each worker that ended
// before it connected and for each try that a slow one must have repeated. One thread at a time.
class Strangers {
 public:
  // A worker starts; it has connected after `seconds`; it has ended before it connected.
  void starts() { ++starting_; }
  void came(double seconds) {
    --starting_;
    excused_ += static_cast<int64_t>(seconds / kFirstTry);
  }
  void died(double seconds) {
    came(seconds);
    ++excused_;
  }

  // `failed`: handshakes that have failed in total. Returns the number caused by strangers.
  int64_t count(int64_t failed) {
    if (starting_ == 0) strangers_ = std::max(strangers_, failed - excused_);
    return strangers_;
  }

 private:
  static constexpr double kFirstTry =
      2.5;  // seconds until a worker repeats its first try, at least
  int64_t starting_ = 0, excused_ = 0, strangers_ = 0;
};

}  // namespace lockstep
