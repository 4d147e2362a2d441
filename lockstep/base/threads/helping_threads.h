// Threads that help their caller as far as processors are free.
#pragma once

#include <functional>
#include <memory>

namespace lockstep {

// Unlike those of a ThreadPool, helpers that have not begun a part are not waited for, so a helper
// without a processor seldom holds the caller up. Between calls they spin for a fifth of a
// millisecond and then sleep; they sleep at once if the machine has fewer processors than threads.
// Not thread-safe.
class HelpingThreads {
 public:
  static constexpr int kMostParts = 0xffff;

  // Throws InvalidArgument unless 1 <= helpers <= 1023, and Error if a thread cannot be started.
  explicit HelpingThreads(int helpers);
  ~HelpingThreads();
  HelpingThreads(const HelpingThreads&) = delete;
  HelpingThreads& operator=(const HelpingThreads&) = delete;

  // Runs body(i) once for every i in [0, n), 0 <= n <= kMostParts: the caller from 0 on, helpers
  // from n - 1 on, so that a caller and one helper that are equally fast have the same indices, and
  // their memory in their caches, in each call. After all calls have returned it rethrows the first
  // exception that was thrown. `body` must not call share().
  void share(int n, const std::function<void(int i)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
