// Connections that the other end has closed.
#pragma once

#include <csignal>
#include <ctime>

namespace lockstep {

// While it lives, writing to a connection whose other end is closed is an error (EPIPE) for this
// thread, and no SIGPIPE, which would end the process: for libraries that write without asking for
// that. What else the thread takes of signals stays. To be destroyed by the same thread.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    others_ = sigismember(&pending, SIGPIPE) == 1;
    const sigset_t pipe = only_pipe();
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~NoBrokenPipe() {
    const sigset_t pipe = only_pipe();
    const timespec now{};
    // What was pending before is somebody else's.
    if (!others_) sigtimedwait(&pipe, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  static sigset_t only_pipe() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
  }
  sigset_t before_;
  bool others_ = false;
};

}  // namespace lockstep
