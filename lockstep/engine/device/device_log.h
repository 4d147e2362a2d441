// A log for finding faults and losses of speed on hardware: the algorithms that a GPU's libraries
// gave, and whether repeated work could be recorded, which shows nowhere else.
#pragma once

#include <string>

namespace lockstep {

// Whether LOCKSTEP_DEVICE_LOG names a file.
bool has_device_log();
// Appends a JSON object as one line to that file. Does nothing without one, or if the file cannot
// be written. Processes and threads can share the file.
void add_to_device_log(const std::string& object) noexcept;
// `text` as a string of JSON; bytes outside ASCII are replaced.
std::string quoted_for_log(const std::string& text);

}  // namespace lockstep
