// Attributes failed handshakes on the control channel either to strangers or to the pool's own
// workers that died or were slow while they started.
#pragma once

#include <cstdint>
#include <deque>
#include <set>

#include "lockstep/base/time_limit.h"

namespace lockstep {

// A failed handshake does not identify its sender. It counts as a stranger's unless a worker that
// was starting at that time ended before it connected, or took so long that its first try must have
// failed. One thread at a time.
class Strangers {
 public:
  // A worker starts; it has connected after `seconds`; it has ended before it connected.
  void starts(uint32_t worker) { starting_.insert(worker); }
  void came(uint32_t worker, double seconds) {
    if (starting_.erase(worker) > 0) resolve(worker, seconds >= kFirstTry);
  }
  void died(uint32_t worker) {
    if (starting_.erase(worker) == 0) return;
    if (!resolve(worker, true)) excuses_.emplace_back(kLater);
  }

  // `failed`: handshakes that have failed in total. Returns the number caused by strangers.
  int64_t count(int64_t failed) {
    std::erase_if(excuses_, [](const TimeLimit& limit) { return limit.reached(); });
    for (; seen_ < failed; ++seen_) {
      if (excuses_.empty()) {
        failures_.push_back({starting_, TimeLimit(kSooner)});
      } else {
        excuses_.pop_front();
      }
    }
    for (size_t i = 0; i < failures_.size();) {
      if (failures_[i].suspects.empty() && failures_[i].known.reached()) {
        ++strangers_;
        failures_.erase(failures_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    return strangers_;
  }

 private:
  // Seconds. The end of a process and its failed handshake are reported separately. The handshake's
  // report may come up to kLater after the process's, or up to kSooner before it. kFirstTry is the
  // shortest time after which a worker gives up its first try.
  static constexpr double kLater = 5, kSooner = 0.25, kFirstTry = 2.5;

  struct Failure {
    std::set<uint32_t> suspects;  // workers that may have caused it
    TimeLimit known;              // until when the end of a suspect may still be reported
  };

  // A suspect did not cause failures, or (`caused`) it did. Returns whether this explains any
  // failures. One worker may have caused several, by trying again.
  bool resolve(uint32_t worker, bool caused) {
    bool explained = false;
    for (size_t i = 0; i < failures_.size();) {
      const bool was = failures_[i].suspects.erase(worker) > 0;
      if (was && caused) {
        explained = true;
        failures_.erase(failures_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    return explained;
  }

  std::set<uint32_t> starting_;
  std::deque<Failure> failures_;
  std::deque<TimeLimit> excuses_;  // ended workers whose failure has not been reported yet
  int64_t seen_ = 0, strangers_ = 0;
};

}  // namespace lockstep
