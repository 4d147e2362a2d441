// Whether equal computations must give equal bits.
#pragma once

namespace lockstep {

// Switches deterministic algorithms on (the default) or off for the whole process, and returns the
// setting before, so that it can be restored. Off, sums over shards are taken in the order in which
// they arrive and a GPU may use algorithms whose bits change from run to run; that may be faster.
// What is trained or compiled already keeps the setting of its time. Thread-safe.
bool set_deterministic(bool on);
// The present setting. Thread-safe.
bool deterministic();

}  // namespace lockstep
