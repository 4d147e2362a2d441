// Hosts of a training that compute nothing: they join a real client and use the protocols of remote
// agents and workers, thousands of them in one thread.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::testing {

struct SimulatedHostsOptions {
  std::string address;   // of the client, "127.0.0.1:4000"
  std::string key_file;  // of the job
  int hosts = 1;         // each with one worker
  int64_t failures = 0;  // number of workers and hosts that fail
  int together = 1;      // failures at a time, as when a switch fails
  uint64_t seed = 1;     // of the choice of failures
};

// Joins as all hosts and works until the client has ended. Of ten failures seven end a worker
// process, two end a host, which reports it, and one makes a host fall silent. Some come while the
// group still recovers from another one. Throws Error if the client ends a connection.
[[noreturn]] void run_simulated_hosts(const SimulatedHostsOptions& options);

}  // namespace lockstep::testing
