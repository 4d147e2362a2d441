#include "lockstep/base/threads/left_threads.h"

#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {
namespace {

struct Left {
  Mutex mutex;
  std::vector<std::function<bool(const TimeLimit&)>> waits LOCKSTEP_GUARDED_BY(mutex);
};

// Never destroyed, so that it can be used at any time.
Left& left() {
  static Left& all = *new Left;
  return all;
}

}  // namespace

void leave_running(std::thread thread, std::function<bool(const TimeLimit& limit)> ended) {
  thread.detach();
  const MutexLock lock(left().mutex);
  left().waits.push_back(std::move(ended));
}

bool wait_for_left_threads(const TimeLimit& limit) {
  const MutexLock lock(left().mutex);
  auto& waits = left().waits;
  while (!waits.empty() && waits.back()(limit)) waits.pop_back();
  return waits.empty();
}

}  // namespace lockstep
