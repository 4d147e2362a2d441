// The interface by which a scheduler starts the hosts of a pool. They join the pool (join.h).
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/cluster/remote/join.h"

namespace lockstep {

// The functions are called by the pool's thread for its hosts, except waits_for() and share(),
// which any thread may call. They do not wait for the scheduler, except begin() and end().
class HostStarter {
 public:
  virtual ~HostStarter() = default;
  // What the hosts and the pool share.
  virtual const JobKey& key() const = 0;
  // The pool listens at `address`, "10.0.0.1:20000". Throws Error if no host can be started.
  virtual void begin(const std::string& address) = 0;
  // The pool awaits the host with this index, from 0.
  virtual void expect(int64_t index) = 0;
  // The host has joined.
  virtual void joined(int64_t index) = 0;
  // Why the host that is expected will not come; "" while it may.
  virtual std::string problem(int64_t index) = 0;
  // What the hosts wait for, "Slurm: 1 of 2 hosts have joined (Resources)", or "".
  virtual std::string waits_for() = 0;
  // Copies a file or folder to where the hosts can read it, until end(). Returns its path there.
  // Throws FileError.
  virtual std::string share(const std::string& path) = 0;
  // Ends all hosts, also those that have not come yet. Never throws.
  virtual void end() = 0;
};

}  // namespace lockstep
