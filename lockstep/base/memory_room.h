// What limits leave of this process's memory. Libraries that generate code end the process where
// they get no memory for it, so it is asked for before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

// Limits the process's own data (RLIMIT_DATA): what is shared, or read from files, does not count.
// `name`: of the option that says so, for messages. Throws Error where so much is in use already
// that less than `least` bytes would be left. Once.
void limit_own_data(uint64_t bytes, const std::string& name, uint64_t least);

// Throws Error, naming the limits of this process (ulimit -v, ulimit -d, an option), where they
// leave less than `bytes`. Costs two system calls where there are no limits. Thread-safe.
void require_room(size_t bytes);

// "there is not enough memory", with the limits of this process where there are any; and what to do
// then, or "". Thread-safe.
std::string out_of_memory_text();
std::string out_of_memory_hint();

}  // namespace lockstep
