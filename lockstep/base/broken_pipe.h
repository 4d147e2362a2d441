// Connections that the other end has closed.
#pragma once

#include "lockstep/base/held_signal.h"

namespace lockstep {

// While it lives, writing to a connection whose other end is closed is an error (EPIPE) for this
// thread, and no SIGPIPE, which would end the process: for libraries that write without asking for
// that. To be destroyed by the same thread.
class NoBrokenPipe : public HeldSignal {
 public:
  NoBrokenPipe() : HeldSignal(SIGPIPE) {}
};

}  // namespace lockstep
