// Waiting for objects from the network: how long it lasts, and how a stop request ends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/base/time_limit.h"

namespace lockstep::storage {

// The calling thread waits for an object from the network while this exists. Thread-safe.
class NetworkWait {
 public:
  NetworkWait();
  ~NetworkWait();
  NetworkWait(const NetworkWait&) = delete;
  NetworkWait& operator=(const NetworkWait&) = delete;

  void goes_on();  // to be called every second
};

// How long any thread of this process has waited for objects from the network, in seconds. Time in
// which several wait counts once. Thread-safe.
double seconds_waited();
// From now on, `counter` grows with every wait that begins or has lasted a second more, so that
// other processes can see that this one waits. Null: none. Thread-safe.
void count_network_waits(std::atomic<int64_t>* counter);

// While this exists, `when` can end requests of this process: if it returns true, those fail that
// did not succeed within a second, whether the store is silent, fails, or sends slowly. `when` is
// called by several threads, several times a second. Thread-safe.
class StopRetries {
 public:
  explicit StopRetries(std::function<bool()> when);
  ~StopRetries();
  StopRetries(const StopRetries&) = delete;
  StopRetries& operator=(const StopRetries&) = delete;

 private:
  std::shared_ptr<const std::function<bool()>> when_;
};
// Whether the function of any StopRetries returns true. Thread-safe.
bool retries_stopped();
// How long requests, with their repetitions, may last after that, in seconds: until some time after
// the first look of any thread that found the stop request, and those that begin later for a
// moment.
inline constexpr double patience_after_stop = 1, patience_for_late_requests = 0.25;

// The time that a request has after a stop request. It begins with this object. Not thread-safe.
class AfterStop {
 public:
  bool out_of_time() const;

 private:
  TimeLimit least_{patience_for_late_requests};
};

// The error of a request that was ended in this way.
inline constexpr const char* stopped_request =
    "a stop was requested while the store did not answer as it should";

}  // namespace lockstep::storage
