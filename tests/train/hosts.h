// Hosts for tests of trainings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep::testing {

// Places workers on several hosts: processes on the loopback, started by env(1), which runs a
// command as ssh would. The entries name the numbers of workers.
inline void place_on_hosts(TrainingOptions& options, std::vector<std::string> hosts) {
  options.workers.hosts = std::move(hosts);
  options.workers.host_launch = "env LOCKSTEP_TEST_HOST={host}";
  options.workers.count = 0;
  for (const TrainingHost& host : hosts_of(options)) options.workers.count += host.workers;
}

}  // namespace lockstep::testing
