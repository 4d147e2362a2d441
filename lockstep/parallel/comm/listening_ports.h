// Ports at which Gloo listens. Gloo binds its sockets to port 0, and the header that could change
// that is missing in Debian's package.
#pragma once

#include "lockstep/base/os/addresses.h"

namespace lockstep {

// While it exists, sockets that this thread binds to port 0 get a free port of the range. They get
// any port if the range has no limits. bind() fails with EADDRINUSE if no port of the range is
// free.
class ListeningPorts {
 public:
  explicit ListeningPorts(const PortRange& ports);
  ~ListeningPorts();
  ListeningPorts(const ListeningPorts&) = delete;
  ListeningPorts& operator=(const ListeningPorts&) = delete;
};

}  // namespace lockstep
