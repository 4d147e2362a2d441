#include "lockstep/parallel/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/spawn.h"

namespace lockstep {
namespace {

constexpr int kMost = 16;  // descriptors that are passed

[[noreturn]] void fail(const std::string& what, int number) {
  throw Error(
      "[process] " + what + ": " + std::strerror(number),
      number == EAGAIN ? "raise the limit on processes (ulimit -u), or use fewer workers" : "");
}

// A program that is not there is the caller's mistake; other reasons may pass.
[[noreturn]] void fail_command(const std::string& program, int number) {
  if (number != ENOENT && number != ENOTDIR && number != EACCES && number != ENOEXEC) {
    fail(program + " cannot be started", number);
  }
  throw InvalidArgument("[process] " + program + " cannot be started: " + std::strerror(number),
                        "install it, or give the path of a program that this user may run");
}

// This executable, opened once because the file under its name may change later.
int executable() {
  static const Descriptor opened(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
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

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
  if (options.descriptors.size() > static_cast<size_t>(kMost)) {
    throw InvalidArgument("[process] at most " + std::to_string(kMost) + " descriptors are passed");
  }
  SpawnRequest request;
  request.descriptors = {options.input, options.output, options.output};
  request.descriptors.insert(request.descriptors.end(), options.descriptors.begin(),
                             options.descriptors.end());
  const bool other = !options.command.empty();
  if (other) {
    request.program = options.command[0];
    request.words = options.command;
    // A command runs in its own session. In this program's session Ctrl-C would end it, and it
    // would stop when it asks the terminal for a password.
    request.new_session = true;
  } else {
    request.program = "/proc/self/fd/" + std::to_string(request.descriptors.size());
    request.words = {program_invocation_short_name};
    request.descriptors.push_back(executable());
  }
  request.words.insert(request.words.end(), options.arguments.begin(), options.arguments.end());
  const Spawned spawned = spawn(request);
  if (spawned.error != 0) {
    if (other) fail_command(options.command[0], spawned.error);
    fail("a worker cannot be started", spawned.error);
  }
  pid_ = spawned.process;
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

int ChildProcess::exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }

bool ChildProcess::signaled() const { return WIFSIGNALED(status_); }

bool ChildProcess::killed() const { return signaled() && WTERMSIG(status_) == SIGKILL; }

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
