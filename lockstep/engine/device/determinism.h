// Whether equal computations must give equal bits.
#pragma once

namespace lockstep {

// Switches deterministic algorithms on (the default) or off for the whole process, and returns the
// previous setting. When off, which may be faster, sums over shards are taken in the order of
// arrival, and a GPU may use algorithms whose bits differ from run to run. Models that are already
// compiled or in training keep their setting. Thread-safe.
bool set_deterministic(bool on);
// The current setting. Thread-safe.
bool deterministic();

}  // namespace lockstep
