// Ctrl-C and SIGTERM while a command works: the first asks it to stop, the second ends it.
#pragma once

namespace lockstep::command {

// From now on a thread of its own takes SIGINT and SIGTERM (those that are not ignored), says so on
// standard error, and stop_wanted() is true. No handler may run on a thread that computes: code
// that oneDNN generates keeps other things in the stack pointer, and the kernel would write a
// handler's frame there, into the heap. To be called once, before any other thread is started:
// later threads inherit that both are blocked. Throws std::system_error without memory for a
// thread.
void catch_stop_signals();

// Thread-safe.
bool stop_wanted();

}  // namespace lockstep::command
