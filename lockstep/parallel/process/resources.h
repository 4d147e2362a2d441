// Compares the system resources that worker processes need with the limits, before any worker
// starts: libraries abort when they get no descriptor, no thread or no memory.
#pragma once

namespace lockstep {

// Raises this process's soft limit on open descriptors to the hard limit (ulimit -Hn).
void raise_descriptor_limit();

struct ResourceNeed {
  int workers = 1, threads = 1;  // on this machine; for each worker
  int hosts = 0;                 // other hosts that a command starts
  int joining = 0;               // other hosts that are started externally
};

// Throws Error if descriptors (ulimit -n), processes (ulimit -u, pids.max of a control group) or
// memory (ulimit -v, ulimit -d) do not suffice. The message names the limit, the need and the
// command that shows the limit.
void check_resources(const ResourceNeed& need);

}  // namespace lockstep
