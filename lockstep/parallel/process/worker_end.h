// How a worker process ended, and for what cause.
#pragma once

#include <string>

namespace lockstep {

struct WorkerEnd {
  std::string how = {};   // "was killed by signal 11 (SIGSEGV)"
  std::string hint = {};  // what the user can do, if known
  // Its computation may be the cause: a fault signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), a
  // status other than 0, or no memory left in its control group.
  bool own_fault = false;
  bool outside = false;   // by a signal unrelated to its work (SIGKILL, SIGTERM, SIGSTOP, ...)
  bool hopeless = false;  // any replacement would end the same way
  // The end of its output, if it ran on another host. On this machine its client reads the output.
  std::string printed = {};

  template <class Archive>
  void serialize(Archive& archive) {
    archive(how, hint, own_fault, outside, hopeless, printed);
  }
};

}  // namespace lockstep
