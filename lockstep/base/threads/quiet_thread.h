// Threads that the library starts.
#pragma once

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"

namespace lockstep {

// Starts a thread that blocks all signals, so that the program's own threads handle them. Throws
// Error if the system cannot start another thread. Thread-safe.
template <class Body>
std::thread quiet_thread(Body body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  } const blocked;
  try {
    return std::thread([body = std::move(body)]() mutable {
      begin_ordinary_arithmetic();
      body();
    });
  } catch (const std::system_error& e) {
    throw Error("[threads] the system cannot start another thread (" + e.code().message() + ")",
                "raise the limit on processes (ulimit -u) or on memory (ulimit -v)");
  }
}

}  // namespace lockstep
