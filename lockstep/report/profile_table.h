// The time profile of a training: as a table, and as a trace for a browser.
#pragma once

#include <string>

#include "lockstep/train/profile/profile.h"

namespace lockstep {

// A table for a terminal of `width` columns. Each account has its milliseconds in an iteration
// (mean of the threads), its share of the wall time, its floor, and the ratio of the floor to its
// time. Accounts below `least` (a share) are combined into one row. Sums of each phase and of all
// accounts follow, then the time that the passes alone would take. Lines end in newlines.
// Thread-safe.
std::string profile_table(const Profile& profile, int width, double least = 0.002);

// The profile as JSON text, without the spans. Thread-safe.
std::string profile_json(const Profile& profile);

// The spans in the Trace Event Format (complete events, one row for each thread, microseconds),
// which Perfetto and chrome://tracing read. Thread-safe.
std::string chrome_trace(const Profile& profile);

}  // namespace lockstep
