// Suppression of a signal that the system raises for a thread's own call.
#pragma once

#include <csignal>
#include <ctime>

namespace lockstep {

// While it lives, one signal that the thread's own calls may raise does not end the process, and
// the call returns its error instead. Examples: SIGPIPE (a write to a pipe without a reader) and
// SIGXFSZ (a file above the size limit). Other signals are handled as before. The same thread must
// destroy it.
class HeldSignal {
 public:
  explicit HeldSignal(int signal) : signal_(signal) {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    others_ = sigismember(&pending, signal_) == 1;
    const sigset_t set = only_it();
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~HeldSignal() {
    const sigset_t set = only_it();
    const timespec now{};
    // A signal that was pending before was not raised by this thread's calls. It stays pending.
    if (!others_) sigtimedwait(&set, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignal(const HeldSignal&) = delete;
  HeldSignal& operator=(const HeldSignal&) = delete;

 private:
  sigset_t only_it() const {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_);
    return set;
  }
  const int signal_;
  sigset_t before_;
  bool others_ = false;
};

}  // namespace lockstep
