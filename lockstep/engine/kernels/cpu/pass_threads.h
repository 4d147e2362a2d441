// Threads that compute single passes together, for predictions of one observation at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep {
class HelpingThreads;
}

namespace lockstep::kernels::cpu {

// During its lifetime share() on this thread divides work among `threads` threads, as far as
// processors are free. They start when a pass needs them. Of several on one thread the last one
// counts. Not thread-safe.
class PassThreads {
 public:
  // Throws InvalidArgument unless 1 <= threads <= 1024.
  explicit PassThreads(int threads);
  ~PassThreads();
  PassThreads(const PassThreads&) = delete;
  PassThreads& operator=(const PassThreads&) = delete;

 private:
  friend void share(int64_t n, int64_t least, const std::function<void(IndexRange)>& body);

  const int threads_;
  PassThreads* const before_;
  std::unique_ptr<HelpingThreads> helpers_;
};

// Runs body(range) for ranges of [0, n), of `least` indices or more if n has as many. Without
// PassThreads there is one range. The result must not depend on the ranges.
void share(int64_t n, int64_t least, const std::function<void(IndexRange)>& body);

}  // namespace lockstep::kernels::cpu
