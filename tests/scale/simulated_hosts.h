// Hosts of a training that compute nothing: they join and speak the protocols of remote agents and
// workers with a real client, thousands in one thread.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::testing {

struct SimulatedHostsOptions {
  std::string address;   // of the client, "127.0.0.1:4000"
  std::string key_file;  // of the job
  int hosts = 1;         // each with one worker
  int64_t failures = 0;  // how many workers and hosts fail
  int together = 1;      // so many at a time, as when a switch fails
  uint64_t seed = 1;     // of the choice of failures
};

// Joins as all hosts and works until the client is gone. Seven of ten failures end a worker
// process, two a host, which reports it; one host falls silent. Some come while the group still
// recovers from another one. Throws Error if the client ends a connection.
[[noreturn]] void run_simulated_hosts(const SimulatedHostsOptions& options);

}  // namespace lockstep::testing
