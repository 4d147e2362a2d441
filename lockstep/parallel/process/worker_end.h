// How worker processes end, and whose fault that is.
#pragma once

#include <string>

namespace lockstep {

struct WorkerEnd {
  std::string how = {};   // "was killed by signal 11 (SIGSEGV)"
  std::string hint = {};  // what to do, where that is known
  // What it computed may be why: a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), a status other
  // than 0, or no memory left in its control group.
  bool own_fault = false;
  bool outside = false;   // by a signal that says nothing about it (SIGKILL, SIGTERM, SIGSTOP, ...)
  bool hopeless = false;  // any other would end alike, for the same reason

  template <class Archive>
  void serialize(Archive& archive) {
    archive(how, hint, own_fault, outside, hopeless);
  }
};

}  // namespace lockstep
