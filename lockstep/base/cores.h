// Which processors threads run on.
#pragma once

#include <vector>

namespace lockstep {

// Those that the calling thread may run on, ascending; none where the system does not say.
// Thread-safe.
std::vector<int> own_cores();

// How many they are, at least 1. Thread-safe.
int available_cores();

// The calling thread, and those that it starts from now on, run on these only (ascending). Where
// there are none, or the system refuses, nothing changes. Thread-safe.
void run_on(const std::vector<int>& cores);

// Those that the process could run on before run_on() was called for the first time. Thread-safe.
std::vector<int> all_cores();

// The calling thread, and those that it starts meanwhile, on these only, for as long as it lasts.
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
