// A thread that shares no descriptors with the other threads of its process. A child process begins
// with copies of the descriptors of the thread that starts it. Where a copy is a lock or the end of
// a pipe, and the child is stopped before it can close it, it stays although the process has ended.
// What no child may have belongs to this thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {

// Thread-safe.
class ApartThread {
 public:
  // That of this process, which lives as long as the process. A child by fork() has its own one,
  // because it has only the thread that called fork(), and none of what belonged to this one.
  static ApartThread& of_this_process();

  // Calls it in the thread, one call at a time; in the caller's where Linux (before 5.9) or the
  // system refuses such a thread. The call must not throw.
  void run(const std::function<void()>& call) LOCKSTEP_EXCLUDES(mutex_);
  bool is_of_this_process() const;

 private:
  struct Job;
  ApartThread();
  void serve() LOCKSTEP_EXCLUDES(mutex_);

  const pid_t process_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<bool> apart_ LOCKSTEP_GUARDED_BY(mutex_);  // none: not known yet
  Job* job_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace lockstep
