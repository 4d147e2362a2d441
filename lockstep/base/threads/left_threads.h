// Threads that run on when the object that they belong to is gone, because every wait has a limit.
#pragma once

#include <functional>
#include <thread>

#include "lockstep/base/time_limit.h"

namespace lockstep {

// Leaves a thread running. `ended` waits until the thread has done all that may take long, and
// returns whether it has; it is kept until then, and called without locks. Thread-safe. Only lack
// of memory makes it throw.
void leave_running(std::thread thread, std::function<bool(const TimeLimit& limit)> ended);

// Waits for all threads that were left, and returns whether they have ended. A program calls this
// before objects of static storage duration are destroyed, which the threads may use; ~Runtime()
// does. Thread-safe.
bool wait_for_left_threads(const TimeLimit& limit);

}  // namespace lockstep
