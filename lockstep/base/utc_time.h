// Times as text.
#pragma once

#include <ctime>
#include <string>

namespace lockstep {

// The current time in UTC: "2026-11-23T20:23:14Z". Thread-safe.
std::string utc_now();

// A time in UTC in the same form. Thread-safe.
std::string utc_text(std::time_t seconds);

}  // namespace lockstep
