// Threads that compute single passes together, for predictions of one observation at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep {
class HelpingThreads;
}

namespace lockstep::kernels {

// Not thread-safe.
class PassThreads {
 public:
  // `threads`: with the caller. They start when a pass needs them; if the system has no more
  // threads, the caller computes alone. Throws InvalidArgument unless 1 <= threads <= 1024.
  explicit PassThreads(int threads);
  ~PassThreads();
  PassThreads(const PassThreads&) = delete;
  PassThreads& operator=(const PassThreads&) = delete;

  // Runs body(), whose passes on this thread they share.
  void run(const std::function<void()>& body);

 private:
  friend void share(int64_t n, int64_t least, const std::function<void(IndexRange)>& body);
  HelpingThreads* helpers();

  int threads_;
  std::unique_ptr<HelpingThreads> helpers_;
};

// Runs body(range), with ArithmeticMode, for ranges of [0, n), of `least` indices or more if n has
// as many: one range, unless PassThreads run the caller. The result must not depend on the ranges.
// A call in a body has one range.
void share(int64_t n, int64_t least, const std::function<void(IndexRange)>& body);

}  // namespace lockstep::kernels
