// Waits for events, with a limit. A fixed pause may be too short, and then the test shows nothing.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace lockstep::testing {

// Seconds within which what is awaited must come.
inline constexpr double kLimit = 30;

// Returns whether the condition holds within the limit.
inline bool await(const std::function<bool()>& holds, double seconds = kLimit) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (holds()) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The state of a thread as in proc(5): 'R' runs, 'S' waits, 'T' is stopped, 'Z' has ended; 0: there
// is no such thread.
inline char state_of(pid_t process, pid_t thread) {
  std::ifstream file("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) +
                     "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= line.size() ? 0 : line[name_end + 2];
}

// The state of a process's first thread.
inline char state_of(pid_t process) { return state_of(process, process); }

// A thread that is seen waiting this often in a row waits for more than a lock.
inline constexpr int kLooks = 5;

// Whether the thread begins to wait for an event within the limit.
inline bool comes_to_wait(pid_t process, pid_t thread) {
  int looks = 0;
  return await([&] {
    looks = state_of(process, thread) == 'S' ? looks + 1 : 0;
    return looks == kLooks;
  });
}

// Whether all threads of this process except the caller's are waiting.
inline bool others_wait() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::atoi(entry.path().filename().c_str());
    if (thread != gettid() && state_of(getpid(), thread) != 'S') return false;
  }
  return true;
}

// Whether the condition holds within the limit and still holds while all other threads of this
// process wait, so that no thread is left to change it.
inline bool comes_to_rest(const std::function<bool()>& holds) {
  int looks = 0;
  return await([&] {
    looks = others_wait() && holds() ? looks + 1 : 0;
    return looks == kLooks;
  });
}

}  // namespace lockstep::testing
