// A limit for starting a process: posix_spawn() returns only when the child has begun to run its
// program, and a child that is stopped before that (SIGSTOP) would block the caller without limit.
#pragma once

#include <sys/types.h>

#include <set>
#include <thread>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {

// Whether a process is stopped, for example by SIGSTOP. False for a process that does not exist.
bool is_stopped(pid_t process);

struct SpawnLimits {
  double stopped = 1;  // seconds that the child may be stopped
  double start = 30;   // seconds until its program must run
};

// Made by the thread that is about to call posix_spawn(), and destroyed after the call. A child
// that exceeds a limit is killed; posix_spawn() then returns as if it had started, and the child's
// end is found as that of any other. Without /proc/self/task/*/children (an option of Linux) there
// is no limit. Throws std::system_error if the system refuses a thread.
class SpawnGuard {
 public:
  explicit SpawnGuard(const SpawnLimits& limits = {});
  ~SpawnGuard();
  SpawnGuard(const SpawnGuard&) = delete;
  SpawnGuard& operator=(const SpawnGuard&) = delete;

 private:
  void watch(const SpawnLimits& limits) LOCKSTEP_EXCLUDES(mutex_);

  const pid_t caller_;             // the thread that starts the child
  const std::set<pid_t> earlier_;  // its children so far
  Mutex mutex_;
  ConditionVariable changed_;
  bool returned_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // posix_spawn() has returned
  std::thread thread_;
};

}  // namespace lockstep
