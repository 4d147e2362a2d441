// Threads that share no descriptors with the other threads of their process. A child process begins
// with copies of the descriptors of the thread that starts it. Where a copy is a lock or the end of
// a pipe, and the child is stopped before it can close it, it stays although the process has ended.
// What no child may have belongs to such a thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {

class LentApartThread;

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
  friend class LentApartThread;
  struct Job;
  struct Idle;
  static Idle& idle();
  // A thread that is idle, or a new one; and its return, when it has no descriptors any more. There
  // are as many threads as were needed at once.
  static ApartThread& lend();
  static void give_back(ApartThread& thread);
  ApartThread();
  void serve() LOCKSTEP_EXCLUDES(mutex_);

  const pid_t process_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<bool> apart_ LOCKSTEP_GUARDED_BY(mutex_);  // none: not known yet
  Job* job_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
};

// A thread for its owner alone, as long as this object exists: a call of another owner that the
// system does not answer, as on a network file system, cannot delay it. In a child by fork() the
// object has no thread. One thread at a time.
class LentApartThread {
 public:
  LentApartThread() : thread_(ApartThread::lend()) {}
  ~LentApartThread() { ApartThread::give_back(thread_); }
  LentApartThread(const LentApartThread&) = delete;
  LentApartThread& operator=(const LentApartThread&) = delete;

  ApartThread* operator->() { return &thread_; }

 private:
  ApartThread& thread_;
};

}  // namespace lockstep
