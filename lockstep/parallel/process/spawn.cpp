#include "lockstep/parallel/process/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <fstream>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/apart_thread.h"

namespace lockstep {
namespace {

// Seconds between two looks at the child.
constexpr double kLook = 0.1;

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr const char* kUsualPath = "/bin:/usr/bin";
// Descriptors up to here are closed one by one where Linux does not know close_range().
constexpr int kMostDescriptors = 1 << 16;

// The children that a thread of this process has started and that have not been reaped.
std::set<pid_t> children_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/children");
  std::set<pid_t> found;
  for (pid_t child = 0; file >> child;) found.insert(child);
  return found;
}

// What a child needs. It shares the memory of this process and may only use what is ready here:
// another thread may have been holding the lock of the allocator.
struct NewProcess {
  std::vector<char*> programs;  // to be tried in turn
  std::vector<char*> words, variables;
  std::vector<int> descriptors;  // beyond the numbers that they will have; -1: stays
  const char* folder = nullptr;
  bool new_session = false, ends_with_caller = true;
  pid_t parent = 0;
  int error = 0;  // its answer, as errno
};

// A pipe whose writing end no child has: it closes when this process ends, however it ends. Then
// the system sends SIGCONT to the process group, and so to a child that has been stopped before it
// could ask for the end of its parent. The child goes on and finds that its parent is gone.
class WakeAtEnd {
 public:
  WakeAtEnd() {
    const std::string path = path_of_reading_end();
    if (path.empty()) return;
    end_ = Descriptor(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!end_) return;
    fcntl(end_.get(), F_SETSIG, SIGCONT);
    fcntl(end_.get(), F_SETOWN, -getpgrp());
    fcntl(end_.get(), F_SETFL, O_NONBLOCK | O_ASYNC);
  }
  // Only while a child is started: nothing else shall be continued.
  ~WakeAtEnd() {
    if (end_) fcntl(end_.get(), F_SETFL, O_NONBLOCK);
  }
  WakeAtEnd(const WakeAtEnd&) = delete;
  WakeAtEnd& operator=(const WakeAtEnd&) = delete;

 private:
  // "" where there is none. Through this path an end is opened that does not share its state.
  static std::string path_of_reading_end() {
    static Mutex mutex;
    static pid_t process = 0;
    static std::string path;
    const MutexLock lock(mutex);
    if (process == getpid()) return path;
    process = getpid();
    path.clear();
    ApartThread::of_this_process().run([&] {
      int ends[2];
      if (gettid() == getpid() || pipe2(ends, O_CLOEXEC) != 0) return;
      path = "/proc/self/task/" + std::to_string(gettid()) + "/fd/" + std::to_string(ends[0]);
    });
    return path;
  }

  Descriptor end_;
};

// Without wrappers, which sanitizers replace by functions that must not be called here.
template <class... A>
long system_call(long number, A... arguments) {
  return syscall(number, arguments...);
}

void close_from(int first) {
  if (system_call(SYS_close_range, static_cast<unsigned>(first), UINT_MAX, 0u) == 0) return;
  for (int i = first; i < kMostDescriptors; ++i) system_call(SYS_close, i);
}

// The layout of the kernel's sigaction differs from the library's; all zeros is the default.
void reset_signals() {
  const std::array<std::byte, 64> standard{};
  for (int i = 1; i <= 64; ++i)
    system_call(SYS_rt_sigaction, i, standard.data(), nullptr, size_t{8});
}

void set_blocked_signals(uint64_t blocked, uint64_t* before) {
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, before, sizeof blocked);
}

#if defined(__SANITIZE_THREAD__)
// The child shares this process's memory. The sanitizer's clone() assumes that it does not, and
// then forgets the threads of this process.
extern "C" int __clone(int (*)(void*), void* stack, int flags, void* content, ...);
constexpr auto* call_clone = &__clone;
#else
constexpr auto* call_clone = &clone;
#endif

// The thread's state of a sanitizer is that of the caller, who returns from other functions.
#define LOCKSTEP_IN_CHILD \
  __attribute__((no_sanitize("address"))) __attribute__((no_sanitize("thread")))

// Runs in the child, on a stack of its own, while the caller waits. Returns only on failure.
LOCKSTEP_IN_CHILD int begin_child(NewProcess& child) {
  fail_point("child at its birth");
  if (child.ends_with_caller) {
    // Before anything that takes time. The parent may have ended already.
    system_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (system_call(SYS_getppid) != child.parent) system_call(SYS_exit_group, 1);
    fail_point("child with its signal");
  }
  for (size_t i = 0; i < child.descriptors.size(); ++i) {
    if (child.descriptors[i] < 0) continue;
    if (system_call(SYS_dup3, child.descriptors[i], static_cast<int>(i), 0) < 0) return errno;
  }
  close_from(static_cast<int>(child.descriptors.size()));
  fail_point("child before its program");
  reset_signals();
  if (child.new_session && system_call(SYS_setsid) < 0) return errno;
  if (child.folder != nullptr && system_call(SYS_chdir, child.folder) != 0) return errno;
  set_blocked_signals(0, nullptr);
  // As execvp(): what cannot be run in one folder may be in the next one.
  int error = ENOENT;
  for (char* const program : child.programs) {
    system_call(SYS_execve, program, child.words.data(), child.variables.data());
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) return errno;
    if (errno == EACCES) error = EACCES;
  }
  return error;
}

LOCKSTEP_IN_CHILD int child_main(void* content) {
  auto& child = *static_cast<NewProcess*>(content);
  child.error = begin_child(child);
  system_call(SYS_exit_group, 127);
  return 127;
}

#undef LOCKSTEP_IN_CHILD

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return pointers;
}

// The files that may be the program.
std::vector<std::string> locations_of(const std::string& program) {
  if (program.empty() || program.find('/') != std::string::npos) return {program};
  const char* const set = std::getenv("PATH");
  const std::string folders = set != nullptr ? set : kUsualPath;
  std::vector<std::string> locations;
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder = folders.substr(begin, end - begin);
    locations.push_back((folder.empty() ? "." : folder) + "/" + program);
    begin = end + 1;
  }
  return locations;
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

Spawned spawn(const SpawnRequest& request) {
  NewProcess child;
  std::vector<std::string> programs = locations_of(request.program), words = request.words;
  std::vector<std::string> variables = request.environment.value_or(std::vector<std::string>());
  child.programs = pointers_to(programs);
  child.words = pointers_to(words);
  child.words.push_back(nullptr);
  child.variables = pointers_to(variables);
  if (!request.environment) {
    for (char** variable = environ; *variable != nullptr; ++variable) {
      child.variables.push_back(*variable);
    }
  }
  child.variables.push_back(nullptr);
  // Copies beyond the numbers of all, so that none is overwritten before its turn.
  std::vector<Descriptor> copies;
  const auto count = static_cast<int>(request.descriptors.size());
  for (const int descriptor : request.descriptors) {
    if (descriptor < 0) {
      child.descriptors.push_back(-1);
      continue;
    }
    copies.emplace_back(fcntl(descriptor, F_DUPFD_CLOEXEC, count));
    if (!copies.back()) return {.error = errno};
    child.descriptors.push_back(copies.back().get());
  }
  child.folder = request.folder.empty() ? nullptr : request.folder.c_str();
  child.new_session = request.new_session;
  child.ends_with_caller = request.ends_with_caller;
  child.parent = getpid();

  std::vector<std::max_align_t> stack(kStackBytes / sizeof(std::max_align_t));
  const SpawnGuard guard;
  std::optional<WakeAtEnd> wake;
  if (request.ends_with_caller) wake.emplace();
  // No handler of this process may run in the child.
  uint64_t before = 0;
  set_blocked_signals(~uint64_t{0}, &before);
  const pid_t process = call_clone(&child_main, stack.data() + stack.size(),
                                   CLONE_VM | CLONE_VFORK | SIGCHLD, &child);
  const int refused = errno;
  set_blocked_signals(before, nullptr);
  if (process < 0) return {.error = refused};
  if (child.error == 0) return {.process = process};
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
  return {.error = child.error};
}

}  // namespace lockstep
