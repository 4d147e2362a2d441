// Writes to connections that the other end has closed.
#pragma once

#include "lockstep/base/threads/held_signal.h"

namespace lockstep {

// While it lives, a write of this thread to a closed connection returns EPIPE instead of raising
// SIGPIPE, which would end the process. For libraries that do not suppress SIGPIPE themselves. The
// same thread must destroy it.
class NoBrokenPipe : public HeldSignal {
 public:
  NoBrokenPipe() : HeldSignal(SIGPIPE) {}
};

}  // namespace lockstep
