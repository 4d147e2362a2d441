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
  sigset_t all, before;
  sigfillset(&all);
  // Inherited from here, so that no signal comes in between.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(std::move(body));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (const std::system_error& e) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(std::string("[threads] the system gives no further one: ") + e.what());
  }
}

}  // namespace lockstep
