// Memory that this process may still use under its limits. Libraries that generate code end the
// process if they get no memory for it, so Lockstep checks for room beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

// Limits the process's own data (RLIMIT_DATA). Shared memory and read-only mapped files do not
// count. `name` is the option that sets the limit, for messages. Throws Error if the data already
// in use leaves less than `least` bytes. Call at most once, before other threads start.
void limit_own_data(uint64_t bytes, const std::string& name, uint64_t least);

// Throws OutOfMemory, naming the limits of this process (ulimit -v, ulimit -d, an option), if they
// leave less than `bytes`. Costs two system calls if there are no limits. Thread-safe.
void check_memory_limit(size_t bytes);

// The message "there is not enough memory", with the limits of this process if there are any, and a
// hint about those limits, or "". Thread-safe.
std::string out_of_memory_text();
std::string out_of_memory_hint();

}  // namespace lockstep
