#include "lockstep/base/os/file_lock.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"

namespace lockstep {
namespace {

constexpr int lock_attempts = 20;
constexpr std::chrono::milliseconds lock_pause{10};

// Returns 0, or an error number.
int try_flock(int descriptor, int operation) {
  int result;
  do result = ::flock(descriptor, operation | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

// The descriptors of locks belong to a thread that shares no descriptors with the others. A child
// process begins with copies of the descriptors of the thread that starts it. Where these are
// locks, and the child is stopped before it can close them, they stay locked although the process
// that took them has ended.
class LockThread {
 public:
  // That of this process: a child by fork() has only the thread that called fork().
  static LockThread& of_this_process() {
    static Mutex mutex;
    static LockThread* present = nullptr;
    const MutexLock lock(mutex);
    if (present == nullptr || present->process_ != getpid()) present = new LockThread;
    return *present;
  }

  // Calls it in the thread; in the caller's where Linux (before 5.9) or the system refuses one.
  void run(const std::function<void()>& call) LOCKSTEP_EXCLUDES(mutex_) {
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
  bool is_of_this_process() const { return process_ == getpid(); }

 private:
  struct Job {
    const std::function<void()>& call;
    bool done = false;
  };

  LockThread() : process_(getpid()) {
    try {
      quiet_thread([this] { serve(); }).detach();
    } catch (const Error&) {
      const MutexLock lock(mutex_);
      apart_ = false;
    }
  }

  void serve() LOCKSTEP_EXCLUDES(mutex_) {
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

  const pid_t process_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<bool> apart_ LOCKSTEP_GUARDED_BY(mutex_);  // none: not known yet
  Job* job_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

struct FileLock::Held {
  explicit Held(LockThread& t) : thread(t) {}
  ~Held() {
    if (descriptor < 0 || !thread.is_of_this_process()) return;
    thread.run([this] { ::close(descriptor); });
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  LockThread& thread;
  int descriptor = -1;
};

FileLock::FileLock(std::unique_ptr<Held> held) : held_(std::move(held)) {}
FileLock::~FileLock() = default;
FileLock::FileLock(FileLock&&) noexcept = default;
FileLock& FileLock::operator=(FileLock&&) noexcept = default;

std::optional<FileLock> FileLock::take(const std::string& path) {
  auto held = std::make_unique<Held>(LockThread::of_this_process());
  int error = 0;
  held->thread.run([&] {
    held->descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (held->descriptor < 0) error = errno;
  });
  if (error != 0) {
    throw FileError("[file] cannot open " + path + ": " + std::system_category().message(error));
  }
  for (int attempt = 1;; ++attempt) {
    held->thread.run([&] { error = try_flock(held->descriptor, LOCK_EX); });
    if (error == 0) return FileLock(std::move(held));
    if (error != EWOULDBLOCK) {
      throw FileError("[file] cannot lock " + path + ": " + std::system_category().message(error));
    }
    if (attempt == lock_attempts) return std::nullopt;
    std::this_thread::sleep_for(lock_pause);
  }
}

bool file_is_locked(const std::string& path) {
  bool locked = false;
  LockThread::of_this_process().run([&] {
    const Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    locked = opened && try_flock(opened.get(), LOCK_SH) == EWOULDBLOCK;
  });
  return locked;
}

}  // namespace lockstep
