// Where a training's time went: as a table, and as a trace for a browser.
#pragma once

#include <string>

#include "lockstep/train/profile.h"

namespace lockstep {

// For a terminal of `width` columns: milliseconds of an iteration (the threads' mean) on each
// account, its share of the wall time, its floor, and how much of the time the floor is. Accounts
// below `least` (a share) are gathered. The sums of the passes and of all follow, then what the
// step would take without anything but its passes. Lines end in newlines. Thread-safe.
std::string profile_table(const Profile& profile, int width, double least = 0.002);

// All of it as JSON text, without the spans. Thread-safe.
std::string profile_json(const Profile& profile);

// The spans in the Trace Event Format (complete events, one row a thread, microseconds) that
// Perfetto and chrome://tracing read. Thread-safe.
std::string chrome_trace(const Profile& profile);

}  // namespace lockstep
