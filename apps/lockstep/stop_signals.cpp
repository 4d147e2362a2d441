#include "apps/lockstep/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "lockstep/base/threads/quiet_thread.h"

namespace lockstep::command {
namespace {

std::atomic<bool> wanted = false;

void take(sigset_t signals, const std::string& does) {
  const std::string text = "\n" + does + "; a second signal ends at once\n";
  for (int number = 0; sigwait(&signals, &number) == 0;) {
    if (wanted.exchange(true)) {
      signal(number, SIG_DFL);
      pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      raise(number);  // ends the process
    }
    // A failed write is ignored.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  }
}

}  // namespace

void catch_stop_signals(const char* does) {
  static std::atomic<bool> caught = false;
  if (caught.exchange(true)) return;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR2}) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    // A shell's background job ignores Ctrl-C, and must continue to do so.
    if (before.sa_handler != SIG_IGN) sigaddset(&signals, number);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // The thread waits until the process ends.
  quiet_thread([signals, text = std::string(does)] { take(signals, text); }).detach();
}

bool stop_wanted() { return wanted; }

}  // namespace lockstep::command
