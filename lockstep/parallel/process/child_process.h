// Child processes: this executable again, or another command.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

struct ChildOptions {
  std::vector<std::string> arguments = {};  // after the program's name
  // Descriptors to pass. The child has them as 3, 4, ... in this order; all others are closed.
  std::vector<int> descriptors = {};
  // A program with its arguments to run in place of this executable. It is searched for in PATH.
  std::vector<std::string> command = {};
  int input = -1, output = -1;  // its standard input; its output and errors; -1: inherited
};

// A child process that runs this executable (by an open descriptor, so that changes of the file
// have no effect) or a command. It starts with default signal handlers and no blocked signals. The
// destructor kills it, and so does the end of the thread that made it (see spawn.h). One thread at
// a time.
class ChildProcess {
 public:
  // Throws InvalidArgument for a command that is not there or cannot be run, Error if the system
  // refuses.
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(ChildProcess&&) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int ended_descriptor() const { return ended_.get(); }
  // Whether it has ended. how() then describes its end.
  bool ended();
  // "exited with status 1", "was killed by signal 9 (SIGKILL)"; "is running".
  const std::string& how() const { return how_; }
  // After its end: whether it ended by its own fault (see WorkerEnd), by a signal, and by SIGKILL.
  // The system sends SIGKILL, too.
  bool own_fault() const;
  int exit_status() const;  // -1: a signal has ended it
  bool signaled() const;
  bool killed() const;
  // Whether it is stopped, for example by SIGSTOP.
  bool stopped() const;
  // Ends it at once, even if it is stopped.
  void kill();
  // Waits for its end. Returns false at the limit.
  bool wait(const TimeLimit& limit);

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  int status_ = 0;  // of waitpid()
  Descriptor ended_;
  std::string how_ = "is running";
};

}  // namespace lockstep
