#include "lockstep/parallel/process/spawn_guard.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace lockstep {
namespace {

// Seconds between two looks at the child.
constexpr double kLook = 0.1;

// The children that a thread of this process has started and that have not been reaped.
std::set<pid_t> children_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/children");
  std::set<pid_t> found;
  for (pid_t child = 0; file >> child;) found.insert(child);
  return found;
}

}  // namespace

bool is_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  // The state follows the name, which is in parentheses and may itself contain parentheses.
  const size_t end = line.rfind(')');
  return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'T';
}

SpawnGuard::SpawnGuard(const SpawnLimits& limits)
    : caller_(gettid()),
      earlier_(children_of(caller_)),
      thread_([this, limits] { watch(limits); }) {}

SpawnGuard::~SpawnGuard() {
  {
    MutexLock lock(mutex_);
    returned_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SpawnGuard::watch(const SpawnLimits& limits) {
  const TimeLimit start(limits.start);
  TimeLimit stopped(limits.stopped);
  MutexLock lock(mutex_);
  while (!returned_) {
    changed_.wait_until(mutex_, TimeLimit(kLook));
    if (returned_) return;
    for (const pid_t child : children_of(caller_)) {
      if (earlier_.contains(child)) continue;
      if (!is_stopped(child)) stopped = TimeLimit(limits.stopped);
      // The caller cannot reap the child before it returns, so the number is still the child's.
      if (stopped.reached() || start.reached()) ::kill(child, SIGKILL);
    }
  }
}

}  // namespace lockstep
