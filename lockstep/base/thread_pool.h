// A fixed team of threads that run one function together: the compute threads of a trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {

// A team of `size` threads, the caller being thread 0. run() wakes the others, runs
// body(thread) on each, and returns when all have returned. Between calls the helpers spin for a
// few microseconds and then sleep. The first exception (by thread number) is rethrown by run()
// after all have returned. Not reentrant: one run() at a time, from one thread. Stops in the
// destructor.
class ThreadPool {
 public:
  // Throws InvalidArgument unless 1 <= size <= 1024.
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  void run(const std::function<void(int thread)>& body);

  // Runs body(i) for every i in [0, n), claimed one at a time by whichever thread is free. After
  // an exception no further index is claimed; the exception with the lowest index is rethrown.
  void for_each(int64_t n, const std::function<void(int64_t i, int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
