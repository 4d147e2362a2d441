#include "lockstep/base/threads/limited_thread.h"

#include <vector>

namespace lockstep {
namespace {

struct LeftThreads {
  Mutex mutex;
  std::vector<LimitedThread> threads LOCKSTEP_GUARDED_BY(mutex);
};

// Never destroyed, so that it can be used at any time.
LeftThreads& left() {
  static LeftThreads& all = *new LeftThreads;
  return all;
}

void leave(LimitedThread thread) {
  const MutexLock lock(left().mutex);
  left().threads.push_back(std::move(thread));
}

}  // namespace

void LimitedThread::End::mark() {
  const MutexLock lock(mutex_);
  marked_ = true;
  changed_.notify_all();
}

bool LimitedThread::End::wait(const TimeLimit& limit) {
  MutexLock lock(mutex_);
  while (!marked_ && !limit.reached()) changed_.wait_until(mutex_, limit);
  return marked_;
}

void LimitedThread::join(const TimeLimit& limit) {
  if (end_->wait(limit)) {
    thread_.join();
  } else {
    leave(std::move(*this));
  }
}

bool wait_for_left_threads(const TimeLimit& limit) {
  while (true) {
    LimitedThread one;
    {
      const MutexLock lock(left().mutex);
      if (left().threads.empty()) return true;
      one = std::move(left().threads.back());
      left().threads.pop_back();
    }
    if (!one.end_->wait(limit)) {
      leave(std::move(one));
      return false;
    }
    one.thread_.join();
  }
}

}  // namespace lockstep
