// The start message from a client to a process that it starts, through a socket or a pipe. The end
// of that connection later means that the client is gone.
#pragma once

#include "lockstep/parallel/process/worker_context.h"

namespace lockstep {

// The first argument of a worker process, and its initial descriptors.
inline constexpr const char* worker_argument = "--lockstep-worker";
inline constexpr int worker_lifeline = 3, worker_arena = 4;

// Throws Error if the worker is gone or does not take the message, InvalidArgument for a message
// that is too long.
void send_start(int socket, const Bytes& start);
// Reads from a socket or a pipe. Throws Error if the client is gone, Timeout after half a minute
// without a complete message.
Bytes receive_start(int from);

}  // namespace lockstep
