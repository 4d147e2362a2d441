// Processes that this one starts: its own executable again, or another command.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

struct ChildOptions {
  std::vector<std::string> arguments = {};  // after the program's name
  // Open there, too: as descriptors 3, 4, ... in this order. All others are closed.
  std::vector<int> descriptors = {};
  // What runs in place of the same executable: a program, sought as the shell does, with its
  // arguments.
  std::vector<std::string> command = {};
  int input = -1, output = -1;  // its standard input; its output and errors; -1: as here
};

// A child of this process that runs the same executable (by a descriptor of it: whatever becomes of
// the file), or a command. It begins with signals as they are by default, none blocked. The
// destructor kills it. One thread at a time.
class ChildProcess {
 public:
  // Throws Error where the system refuses.
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(ChildProcess&&) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int ended_descriptor() const { return ended_.get(); }
  // Whether it has ended; then how() says how.
  bool ended();
  // "exited with status 1", "was killed by signal 9 (SIGKILL)"; "is running".
  const std::string& how() const { return how_; }
  // Of one that has ended: whether by its own fault (see WorkerEnd), by a signal, and by SIGKILL,
  // which the system sends, too.
  bool own_fault() const;
  bool signalled() const;
  bool killed() const;
  // Whether it is stopped, as by SIGSTOP.
  bool stopped() const;
  // Ends it at once, even where it is stopped.
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
