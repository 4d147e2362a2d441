// Threads of the library itself.
#pragma once

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"

namespace lockstep {

// A thread that takes no signals: those are for the program's own. Throws Error where the system
// has none left. Thread-safe.
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
    throw Error("[threads] the system gives no further thread (" + e.code().message() + ")",
                "raise the limit on processes (ulimit -u) or on memory (ulimit -v)");
  }
}

}  // namespace lockstep
