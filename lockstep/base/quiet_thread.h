// Threads of the library itself.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace lockstep {

// A thread that takes no signals: those are for the program's own. Throws std::system_error where
// the system has none left.
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
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace lockstep
