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

}  // namespace lockstep
