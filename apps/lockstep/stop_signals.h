// Ctrl-C, SIGTERM, and SIGUSR2 of a scheduler whose time ends: the first signal requests a stop,
// the second ends the process.
#pragma once

namespace lockstep::command {

// Starts a thread that receives SIGINT, SIGTERM and SIGUSR2, unless they are ignored. At the first
// signal it prints on standard error what this process `does` now, and stop_wanted() becomes true.
// A signal handler would be unsafe on compute threads: code that oneDNN generates keeps other
// values in the stack pointer, so the kernel would write the handler's frame into the heap. Call it
// before any other thread is started, because later threads inherit the blocked signals. Does
// nothing when called again. Throws Error if the thread cannot be started.
void catch_stop_signals(const char* does = "finishing the iteration");

// Whether a stop signal was received. Thread-safe.
bool stop_wanted();

}  // namespace lockstep::command
