// Who failed to come in on the control channel: strangers, or workers of one's own that died or
// were slow while they started.
#pragma once

#include <cstdint>
#include <deque>
#include <set>

#include "lockstep/base/time_limit.h"

namespace lockstep {

// Handshakes that failed have no name. One is a stranger's unless a worker that was starting then
// ended before it came in, or took so long that its first try must have failed. One thread at a
// time.
class Strangers {
 public:
  // A worker starts; it has come in, after so many seconds; it has ended before that.
  void starts(uint32_t worker) { starting_.insert(worker); }
  void came(uint32_t worker, double seconds) {
    if (starting_.erase(worker) > 0) resolve(worker, seconds >= kFirstTry);
  }
  void died(uint32_t worker) {
    if (starting_.erase(worker) == 0) return;
    if (!resolve(worker, true)) excuses_.emplace_back(kLater);
  }

  // So many handshakes have failed in all; how many of them were strangers'.
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
  // An end is seen by two ways: until when the handshake's news comes after the process's, and the
  // other way round, in seconds; what a worker's first try takes at least until it is given up.
  static constexpr double kLater = 5, kSooner = 0.25, kFirstTry = 2.5;

  struct Failure {
    std::set<uint32_t> suspects;  // workers that may have been it
    TimeLimit known;              // until when the end of one may be heard of
  };

  // A suspect was it, or was not; whether failures are explained by it. It may have tried again.
  bool resolve(uint32_t worker, bool guilty) {
    bool explained = false;
    for (size_t i = 0; i < failures_.size();) {
      const bool was = failures_[i].suspects.erase(worker) > 0;
      if (was && guilty) {
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
  std::deque<TimeLimit> excuses_;  // ends whose failure has not been heard of
  int64_t seen_ = 0, strangers_ = 0;
};

}  // namespace lockstep
