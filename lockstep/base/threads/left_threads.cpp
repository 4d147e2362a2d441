#include "lockstep/base/threads/left_threads.h"

#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {
namespace {

struct LeftThread {
  std::thread thread;
  std::function<bool(const TimeLimit&)> ended;
};

struct LeftThreads {
  Mutex mutex;
  std::vector<LeftThread> threads LOCKSTEP_GUARDED_BY(mutex);
};

// Never destroyed, so that it can be used at any time.
LeftThreads& left() {
  static LeftThreads& all = *new LeftThreads;
  return all;
}

}  // namespace

void leave_running(std::thread thread, std::function<bool(const TimeLimit& limit)> ended) {
  const MutexLock lock(left().mutex);
  left().threads.push_back({std::move(thread), std::move(ended)});
}

bool wait_for_left_threads(const TimeLimit& limit) {
  while (true) {
    LeftThread one;
    {
      const MutexLock lock(left().mutex);
      if (left().threads.empty()) return true;
      one = std::move(left().threads.back());
      left().threads.pop_back();
    }
    if (!one.ended(limit)) {
      const MutexLock lock(left().mutex);
      left().threads.push_back(std::move(one));
      return false;
    }
    one.thread.join();  // past its last wait
    // What it used is destroyed here, without the lock: that may leave other threads.
  }
}

}  // namespace lockstep
