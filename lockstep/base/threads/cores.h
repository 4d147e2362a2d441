// Processors that threads may run on.
#pragma once

#include <vector>

namespace lockstep {

// The processors that the calling thread may run on, in ascending order. Empty if the system does
// not report them. Thread-safe.
std::vector<int> own_cores();

// Restricts the calling thread, and the threads that it starts from now on, to `cores` (ascending).
// Does nothing if `cores` is empty or the system refuses. Thread-safe.
void run_on(const std::vector<int>& cores);

// The processors that were available before the first call of run_on(). Thread-safe.
std::vector<int> all_cores();

// While it lives, restricts the calling thread, and the threads that it starts, to `cores`.
class OnCores {
 public:
  explicit OnCores(const std::vector<int>& cores) : before_(own_cores()) { run_on(cores); }
  ~OnCores() { run_on(before_); }
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  const std::vector<int> before_;
};

}  // namespace lockstep
