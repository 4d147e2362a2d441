// Threads for which their owners wait with a limit, because what they do may hang.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

// Movable. One thread at a time calls the functions of an object.
class LimitedThread {
 public:
  LimitedThread() = default;
  // Starts a thread as quiet_thread() does.
  template <class Body>
  explicit LimitedThread(Body body)
      : end_(std::make_shared<End>()),
        thread_(quiet_thread([body = std::move(body), end = end_]() mutable {
          {
            Body own = std::move(body);
            own();
          }  // what it holds is destroyed before the end is marked
          end->mark();
        })) {}

  bool joinable() const { return thread_.joinable(); }
  // Joins the thread if it ends within the limit, otherwise leaves it running. Only lack of memory
  // makes it throw.
  void join(const TimeLimit& limit);

 private:
  friend bool wait_for_left_threads(const TimeLimit& limit);
  class End {
   public:
    void mark() LOCKSTEP_EXCLUDES(mutex_);
    // Returns whether the thread has ended.
    bool wait(const TimeLimit& limit) LOCKSTEP_EXCLUDES(mutex_);

   private:
    Mutex mutex_;
    ConditionVariable changed_;
    bool marked_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  };
  std::shared_ptr<End> end_;
  std::thread thread_;
};

// Waits for all threads that were left running, and returns whether they have ended. A program
// calls this before objects of static storage duration are destroyed, which the threads may use;
// ~Runtime() does. Thread-safe.
bool wait_for_left_threads(const TimeLimit& limit);

}  // namespace lockstep
