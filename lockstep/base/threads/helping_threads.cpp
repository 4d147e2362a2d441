#include "lockstep/base/threads/helping_threads.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/pause.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {
namespace {

// Longer than what lies between two products of a network that generates a text, and than waking a
// thread takes.
constexpr std::chrono::microseconds kSpin{200};

}  // namespace

// A new round publishes parts; a thread that takes one may rely on `body`, because the round ends
// only when all parts are finished. A helper that finds none registers as a sleeper and looks again
// under the mutex; the caller looks for sleepers after it has published. Both are sequentially
// consistent, so no wake-up is lost.
struct HelpingThreads::State {
  const std::function<void(int)>* body = nullptr;
  alignas(64) std::atomic<uint64_t> parts{0};  // round << 32 | first << 16 | end
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<int> finished{0};
  std::atomic<int> sleeping{0};
  Mutex mutex;
  ConditionVariable wake;
  std::exception_ptr error LOCKSTEP_GUARDED_BY(mutex);
  bool spins = false;
  std::vector<std::thread> helpers;

  ~State() {
    stop = true;
    { const MutexLock lock(mutex); }
    wake.notify_all();
    for (std::thread& helper : helpers) helper.join();
  }

  static int first_of(uint64_t p) { return static_cast<int>(p >> 16 & 0xffff); }
  static int end_of(uint64_t p) { return static_cast<int>(p & 0xffff); }
  bool has_parts() const {
    const uint64_t now = parts.load();
    return first_of(now) < end_of(now);
  }

  // -1: there is none.
  int take(bool last) {
    uint64_t now = parts.load();
    while (first_of(now) < end_of(now)) {
      const int part = last ? end_of(now) - 1 : first_of(now);
      if (parts.compare_exchange_weak(now, last ? now - 1 : now + (1 << 16))) return part;
    }
    return -1;
  }

  void compute(int part) noexcept {
    try {
      (*body)(part);
    } catch (...) {
      const MutexLock lock(mutex);
      if (!error) error = std::current_exception();
    }
    finished.fetch_add(1);
  }

  void help() {
    const auto wanted = [&] { return stop.load() || has_parts(); };
    while (!stop.load()) {
      const int part = take(true);
      if (part >= 0) {
        compute(part);
      } else if (!spins || !spin_until(wanted, kSpin)) {
        const MutexLock lock(mutex);
        sleeping.fetch_add(1);
        while (!wanted()) wake.wait(mutex);
        sleeping.fetch_sub(1);
      }
    }
  }
};

HelpingThreads::HelpingThreads(int helpers) {
  if (helpers < 1 || helpers > 1023) {
    throw InvalidArgument("[threads] a thread has 1 to 1023 helpers, received " +
                          std::to_string(helpers));
  }
  state_ = std::make_unique<State>();
  state_->spins = helpers < available_cores();
  state_->helpers.reserve(static_cast<size_t>(helpers));
  for (int i = 0; i < helpers; ++i) {
    state_->helpers.push_back(quiet_thread([state = state_.get()] { state->help(); }));
  }
}

HelpingThreads::~HelpingThreads() = default;

void HelpingThreads::share(int n, const std::function<void(int)>& body) {
  if (n < 0 || n > kMostParts) {
    throw InvalidArgument("[threads] " + std::to_string(n) + " parts are not 0 to " +
                          std::to_string(kMostParts));
  }
  State& s = *state_;
  s.body = &body;
  s.finished = 0;
  s.parts = ((s.parts.load() >> 32) + 1) << 32 | static_cast<uint64_t>(n);
  if (s.sleeping.load() > 0) {
    { const MutexLock lock(s.mutex); }  // each sleeper is before its last look or waits
    s.wake.notify_all();
  }
  for (int part = s.take(false); part >= 0; part = s.take(false)) s.compute(part);
  const auto all_finished = [&] { return s.finished.load() == n; };
  // A helper that has lost its processor needs one.
  while (!all_finished() && !(s.spins && spin_until(all_finished, kSpin))) {
    std::this_thread::yield();
  }
  const MutexLock lock(s.mutex);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace lockstep
