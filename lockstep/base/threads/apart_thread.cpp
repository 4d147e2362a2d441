#include "lockstep/base/threads/apart_thread.h"

#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/quiet_thread.h"

namespace lockstep {

struct ApartThread::Job {
  const std::function<void()>& call;
  bool done = false;
};

ApartThread& ApartThread::of_this_process() {
  static Mutex mutex;
  static ApartThread* present = nullptr;
  const MutexLock lock(mutex);
  if (present == nullptr || !present->is_of_this_process()) present = new ApartThread;
  return *present;
}

struct ApartThread::Idle {
  Mutex mutex;
  std::vector<ApartThread*> threads LOCKSTEP_GUARDED_BY(mutex);
};

ApartThread::Idle& ApartThread::idle() {
  // Never destroyed: threads may still lock files while the program ends.
  static Idle* const all = new Idle;
  return *all;
}

ApartThread& ApartThread::lend() {
  {
    Idle& all = idle();
    const MutexLock lock(all.mutex);
    // After fork() the child does not have the threads of its parent.
    std::erase_if(all.threads, [](const ApartThread* t) { return !t->is_of_this_process(); });
    if (!all.threads.empty()) {
      ApartThread* const last = all.threads.back();
      all.threads.pop_back();
      return *last;
    }
  }
  return *new ApartThread;
}

void ApartThread::give_back(ApartThread& thread) {
  if (!thread.is_of_this_process()) return;
  Idle& all = idle();
  const MutexLock lock(all.mutex);
  all.threads.push_back(&thread);
}

ApartThread::ApartThread() : process_(getpid()) {
  try {
    quiet_thread([this] { serve(); }).detach();
  } catch (const Error&) {
    const MutexLock lock(mutex_);
    apart_ = false;
  }
}

bool ApartThread::is_of_this_process() const { return process_ == getpid(); }

void ApartThread::run(const std::function<void()>& call) {
  Job job{call};
  {
    const MutexLock lock(mutex_);
    while (!apart_ || job_ != nullptr) changed_.wait(mutex_);
    if (*apart_) {
      job_ = &job;
      changed_.notify_all();
      while (!job.done) changed_.wait(mutex_);
      return;
    }
  }
  call();
}

void ApartThread::serve() {
  const MutexLock lock(mutex_);
  apart_ = syscall(SYS_close_range, 0U, UINT_MAX, CLOSE_RANGE_UNSHARE) == 0;
  changed_.notify_all();
  while (*apart_) {
    while (job_ == nullptr) changed_.wait(mutex_);
    Job& job = *job_;
    {
      const MutexUnlock unlocked(mutex_);
      job.call();
    }
    job.done = true;
    job_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace lockstep
