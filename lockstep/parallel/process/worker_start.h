// How a process learns what it needs from the client that starts it: by a socket or a pipe, whose
// end later says that the client is gone.
#pragma once

#include "lockstep/parallel/process/runtime.h"

namespace lockstep {

// The first argument of a worker process, and the descriptors it begins with.
inline constexpr const char* worker_argument = "--lockstep-worker";
inline constexpr int worker_lifeline = 3, worker_arena = 4;

// Throws Error where the worker is gone, or does not listen; InvalidArgument for what is too long.
void send_start(int socket, const Bytes& start);
// From a socket or a pipe. Throws Error where the client is gone, or says nothing for half a
// minute.
Bytes receive_start(int from);

}  // namespace lockstep
