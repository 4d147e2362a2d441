#include "lockstep/parallel/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/spawn_guard.h"

namespace lockstep {
namespace {

// First descriptor of a child, and the largest number of them. Descriptors to be passed are first
// moved above this range.
constexpr int kFirst = 3, kMost = 16;

[[noreturn]] void fail(const std::string& what, int number) {
  throw Error(
      "[process] " + what + ": " + std::strerror(number),
      number == EAGAIN ? "raise the limit on processes (ulimit -u), or use fewer workers" : "");
}

// This executable, opened once because the file under its name may change later.
int executable() {
  static const Descriptor opened = [] {
    const Descriptor low(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    return Descriptor(fcntl(low.get(), F_DUPFD_CLOEXEC, kFirst + kMost + 1));
  }();
  if (!opened) fail("/proc/self/exe cannot be opened", errno);
  return opened.get();
}

std::string described(int status) {
  if (WIFEXITED(status)) return "exited with status " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  const char* const name = sigabbrev_np(number);
  return "was killed by signal " + std::to_string(number) +
         (name ? " (SIG" + std::string(name) + ")" : "");
}

struct Actions {
  posix_spawn_file_actions_t value;
  Actions() { posix_spawn_file_actions_init(&value); }
  ~Actions() { posix_spawn_file_actions_destroy(&value); }
};

struct Attributes {
  posix_spawnattr_t value;
  Attributes() { posix_spawnattr_init(&value); }
  ~Attributes() { posix_spawnattr_destroy(&value); }
};

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
  if (options.descriptors.size() > static_cast<size_t>(kMost)) {
    throw InvalidArgument("[process] at most " + std::to_string(kMost) + " descriptors are passed");
  }
  // Copies above the target range, so that dup2 to a target closes no other source.
  std::vector<Descriptor> moved;
  Actions actions;
  const auto pass = [&](int descriptor, int place) {
    moved.emplace_back(fcntl(descriptor, F_DUPFD_CLOEXEC, kFirst + kMost + 1));
    if (!moved.back()) fail("a descriptor cannot be passed", errno);
    posix_spawn_file_actions_adddup2(&actions.value, moved.back().get(), place);
  };
  if (options.input >= 0) pass(options.input, STDIN_FILENO);
  if (options.output >= 0) pass(options.output, STDOUT_FILENO);
  if (options.output >= 0) pass(options.output, STDERR_FILENO);
  int next = kFirst;
  for (const int descriptor : options.descriptors) pass(descriptor, next++);
  const bool other = !options.command.empty();
  if (!other) posix_spawn_file_actions_adddup2(&actions.value, executable(), next++);
  posix_spawn_file_actions_addclosefrom_np(&actions.value, next);
  Attributes attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes.value, &none);
  posix_spawnattr_setsigdefault(&attributes.value, &all);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  // A command runs in its own session. In this program's session Ctrl-C would end it, and it would
  // stop when it asks the terminal for a password.
  if (other) flags |= POSIX_SPAWN_SETSID;
  posix_spawnattr_setflags(&attributes.value, static_cast<short>(flags));

  std::vector<std::string> words{program_invocation_short_name};
  if (other) words = options.command;
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  const std::string path = other ? words[0] : "/proc/self/fd/" + std::to_string(next - 1);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto spawn = other ? posix_spawnp : posix_spawn;
  const int error = [&] {
    const SpawnGuard guard;
    return spawn(&pid_, path.c_str(), &actions.value, &attributes.value, arguments.data(), environ);
  }();
  if (error != 0) fail(other ? path + " cannot be started" : "a worker cannot be started", error);
  ended_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!ended_) {
    const int number = errno;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    reaped_ = true;
    fail("a worker cannot be watched", number);
  }
}

ChildProcess::~ChildProcess() {
  if (!ended_ || reaped_) return;
  kill();
  // With a limit, because a process that hangs in the kernel does not end on SIGKILL.
  wait(TimeLimit(10));
}

bool ChildProcess::ended() {
  if (reaped_) return true;
  pollfd watched{ended_.get(), POLLIN, 0};
  if (poll(&watched, 1, 0) == 0) return false;
  int status = 0;
  const pid_t found = waitpid(pid_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return false;
  reaped_ = true;
  // The status is unknown if this program ignores SIGCHLD or reaps its children elsewhere.
  how_ = found == pid_ ? described(status) : "has ended";
  if (found == pid_) status_ = status;
  return true;
}

bool ChildProcess::own_fault() const {
  if (WIFEXITED(status_)) return WEXITSTATUS(status_) != 0;
  constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  return std::find(std::begin(kFaults), std::end(kFaults), WTERMSIG(status_)) != std::end(kFaults);
}

bool ChildProcess::signalled() const { return WIFSIGNALED(status_); }

bool ChildProcess::killed() const { return signalled() && WTERMSIG(status_) == SIGKILL; }

bool ChildProcess::stopped() const { return !reaped_ && is_stopped(pid_); }

void ChildProcess::kill() {
  // By descriptor, because the process id may have been reused if it was reaped elsewhere.
  if (!reaped_) syscall(SYS_pidfd_send_signal, ended_.get(), SIGKILL, nullptr, 0);
}

bool ChildProcess::wait(const TimeLimit& limit) {
  while (!ended()) {
    if (limit.reached()) return false;
    pollfd watched{ended_.get(), POLLIN, 0};
    poll(&watched, 1, limit.milliseconds_left());
  }
  return true;
}

}  // namespace lockstep
