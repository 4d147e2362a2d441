// Locks whose use Clang checks (-Wthread-safety), because those of the standard library have no
// annotations. Clang 14 does not check constructors, destructors and catch blocks, and checks a
// lambda without the mutexes of the function around it: a lambda is annotated like a function.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "lockstep/base/time_limit.h"

// Clang's attributes; nothing for other compilers.
#ifdef __clang__
#define LOCKSTEP_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define LOCKSTEP_THREAD_ANNOTATION(attribute)
#endif

// A class whose objects are held and released.
#define LOCKSTEP_CAPABILITY(name) LOCKSTEP_THREAD_ANNOTATION(capability(name))
// A class whose objects hold or release a capability during their lifetime.
#define LOCKSTEP_SCOPED_CAPABILITY LOCKSTEP_THREAD_ANNOTATION(scoped_lockable)
// A variable that is read and written only while the mutex is held.
#define LOCKSTEP_GUARDED_BY(mutex) LOCKSTEP_THREAD_ANNOTATION(guarded_by(mutex))
// A function whose callers hold the mutex.
#define LOCKSTEP_REQUIRES(...) LOCKSTEP_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// A function whose callers do not hold the mutex, because the function locks it.
#define LOCKSTEP_EXCLUDES(...) LOCKSTEP_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// A function that locks, or unlocks, the mutex for its caller.
#define LOCKSTEP_ACQUIRE(...) LOCKSTEP_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define LOCKSTEP_RELEASE(...) LOCKSTEP_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// A function that is not checked. Each use states its reason in a comment.
#define LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS LOCKSTEP_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace lockstep {

// Not recursive. The constructor is constexpr: a mutex of static storage duration is ready before
// any code runs.
class LOCKSTEP_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() LOCKSTEP_ACQUIRE() { mutex_.lock(); }
  void unlock() LOCKSTEP_RELEASE() { mutex_.unlock(); }

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

// Holds a mutex during its lifetime.
class LOCKSTEP_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOCKSTEP_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() LOCKSTEP_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Releases a mutex that the thread holds, during its lifetime.
class LOCKSTEP_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) LOCKSTEP_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() LOCKSTEP_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// A wait releases the mutex, and locks it again before it returns. It may return without a
// notification, so each stands in a loop: while (!condition) changed.wait(mutex). Clang follows
// such a loop, but no condition in a lambda. Thread-safe.
class ConditionVariable {
 public:
  ConditionVariable() = default;
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;

  void wait(Mutex& mutex) LOCKSTEP_REQUIRES(mutex) {
    Held lock(mutex);
    changed_.wait(lock.held);
  }
  // Returns at the limit at the latest. A wait lasts an hour at most, because the system's clock
  // cannot represent every limit.
  void wait_until(Mutex& mutex, const TimeLimit& limit) LOCKSTEP_REQUIRES(mutex) {
    Held lock(mutex);
    changed_.wait_for(lock.held, std::chrono::duration<double>(std::min(limit.left(), 3600.0)));
  }
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

 private:
  // The mutex as the standard library takes it. The caller holds it before and afterwards.
  struct Held {
    explicit Held(Mutex& mutex) : held(mutex.mutex_, std::adopt_lock) {}
    ~Held() { held.release(); }
    std::unique_lock<std::mutex> held;
  };

  std::condition_variable changed_;
};

}  // namespace lockstep
