// Starts of processes: what posix_spawn() does, and the end of a child with the thread that started
// it. A child that is stopped (SIGSTOP) before it runs its program blocks that thread, so there are
// limits for the start.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {

// Whether a process is stopped, for example by SIGSTOP. False for a process that does not exist.
bool is_stopped(pid_t process);

struct SpawnLimits {
  double stopped = 1;  // seconds that the child may be stopped
  double start = 30;   // seconds until its program must run
};

// Made by the thread that is about to start a child, and destroyed after the start. A child that
// exceeds a limit is killed; it then counts as started, and its end is found as that of any other.
// Without /proc/self/task/*/children (an option of Linux) there is no limit. Throws
// std::system_error if the system refuses a thread.
class SpawnGuard {
 public:
  explicit SpawnGuard(const SpawnLimits& limits = {});
  ~SpawnGuard();
  SpawnGuard(const SpawnGuard&) = delete;
  SpawnGuard& operator=(const SpawnGuard&) = delete;

 private:
  void watch(const SpawnLimits& limits) LOCKSTEP_EXCLUDES(mutex_);

  const pid_t caller_;             // the thread that starts the child
  const std::set<pid_t> earlier_;  // its children so far
  Mutex mutex_;
  ConditionVariable changed_;
  bool returned_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // the child has been started
  std::thread thread_;
};

struct SpawnRequest {
  std::string program = {};             // its file; a name without "/" is searched for in PATH
  std::vector<std::string> words = {};  // its arguments, after its name
  std::optional<std::vector<std::string>> environment = {};  // "NAME=VALUE"; none: this process's
  // The descriptors that the child has as 0, 1, 2, ...; -1, only for these three: this process's.
  // All others are closed before anything else, so the child keeps no lock of this process.
  std::vector<int> descriptors = {-1, -1, -1};
  std::string folder = {};   // its working folder; "": this process's
  bool new_session = false;  // without the terminal of this process
  // Whether the child is killed when the thread that started it ends, however this process ends,
  // even if the child is stopped, and from before it runs its program. A program with privileges of
  // its file (set-user-ID, capabilities) has to ask for this again.
  bool ends_with_caller = true;
};

struct Spawned {
  pid_t process = -1;
  int error = 0;  // why there is none, as errno
};

// Starts a child with default signal handlers and no blocked signals, within SpawnLimits. Its end
// is to be awaited by waitpid(). Thread-safe. Throws std::system_error if the system refuses a
// thread or memory.
Spawned spawn(const SpawnRequest& request);

}  // namespace lockstep
