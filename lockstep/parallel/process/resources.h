// What worker processes need of the system, compared with what it gives before any is started:
// libraries abort where they get no descriptor, no thread or no memory.
#pragma once

namespace lockstep {

// Raises this process's limit on open descriptors as far as it may (ulimit -Hn).
void raise_descriptor_limit();

struct ResourceNeed {
  int workers = 1, threads = 1;  // on this machine; of each worker
  int hosts = 0;                 // other ones
};

// Throws Error, which names the limit, what is needed and the command that shows the limit, where
// descriptors (ulimit -n), processes (ulimit -u, pids.max of a control group) or memory (ulimit -v,
// ulimit -d) do not suffice for them.
void check_resources(const ResourceNeed& need);

}  // namespace lockstep
