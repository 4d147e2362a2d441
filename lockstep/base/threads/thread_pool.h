// A fixed set of threads that run one function together: the compute threads of a trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {

// The number of processors that the calling thread may run on and may keep busy, at least 1: not
// more than the quota of its control group allows (a container's; see cpu_quota.h), rounded up. The
// quota is read once. Thread-safe.
int available_cores();

// A pool of `size` threads. The caller is thread 0. run() wakes the other threads, runs
// body(thread) on each thread that is used and returns when all calls have returned. Between calls
// the helper threads spin for a few microseconds and then sleep. run() rethrows the first exception
// (by thread number) after all calls have returned. Not reentrant: one run() at a time, from one
// thread. The destructor stops the threads.
class ThreadPool {
 public:
  // Throws InvalidArgument unless 1 <= size <= 1024.
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  // From now on only the first `threads` threads take part, from 1 to size(); the others sleep. Not
  // during a run(). At first all take part.
  void use(int threads);
  int used() const;
  void run(const std::function<void(int thread)>& body);

  // Runs body(i, thread) for every i in [0, n). A free thread claims one index at a time. After an
  // exception no further index is claimed, and the exception with the lowest index is rethrown.
  void for_each(int64_t n, const std::function<void(int64_t i, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
