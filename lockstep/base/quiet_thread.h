// Threads of the library itself.
#pragma once

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

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
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    throw Error(std::string("[threads] the system gives no further one: ") + e.what());
  }
}

}  // namespace lockstep
