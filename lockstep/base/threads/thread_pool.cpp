#include "lockstep/base/threads/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/pause.h"

namespace lockstep {
namespace {

// Long enough to cover the gap between two runs of a training step. Short enough to leave the core
// to other threads soon.
constexpr std::chrono::microseconds spin_time{20};

constexpr int bits_of_used = 11;  // for up to 1024 threads

int used_in(uint64_t round) { return static_cast<int>(round & ((1 << bits_of_used) - 1)); }

}  // namespace

// A new value of `round` announces a run; its last bits are the number of threads that take part.
// `running` == 0 is its end. A waiting thread spins for a
// while, then registers as a sleeper and checks the value again under the mutex. A thread that
// changes the value checks for sleepers afterwards. Both sides are sequentially consistent, so at
// least one of them sees the other and no wake-up is lost.
struct ThreadPool::State {
  const int size;
  const bool spins;
  int used;
  const std::function<void(int)>* body = nullptr;
  std::vector<std::exception_ptr> errors;
  std::atomic<bool> busy{false};
  bool stop = false;

  alignas(64) std::atomic<uint64_t> round{0};
  alignas(64) std::atomic<int> running{0};
  alignas(64) std::atomic<int> sleeping_helpers{0};
  std::atomic<int> sleeping_unused{0};
  std::atomic<int> sleeping_callers{0};
  Mutex mutex;  // guards no data: it orders a sleeper's last check and the wake-up
  ConditionVariable wake_helpers, wake_unused, wake_caller;
  std::vector<std::thread> helpers;

  explicit State(int threads)
      : size(threads),
        spins(threads <= available_cores()),
        used(threads),
        errors(static_cast<size_t>(threads)) {}

  ~State() {
    stop = true;  // published by the new round
    used = size;
    announce();
    for (std::thread& helper : helpers) helper.join();
  }

  template <class Ready>
  void wait(const Ready& ready, std::atomic<int>& sleeping, ConditionVariable& wake)
      LOCKSTEP_EXCLUDES(mutex) {
    if (ready()) return;
    if (spins && spin_until(ready, spin_time)) return;
    const MutexLock lock(mutex);
    sleeping.fetch_add(1);
    while (!ready()) wake.wait(mutex);
    sleeping.fetch_sub(1);
  }

  void wake_sleepers(const std::atomic<int>& sleeping, ConditionVariable& wake)
      LOCKSTEP_EXCLUDES(mutex) {
    if (sleeping.load() == 0) return;
    { const MutexLock lock(mutex); }  // each sleeper is before its last check or waits
    wake.notify_all();
  }

  void announce() {
    const uint64_t before = round.load();
    round.store((((before >> bits_of_used) + 1) << bits_of_used) | static_cast<uint64_t>(used));
    wake_sleepers(sleeping_helpers, wake_helpers);
    if (used > used_in(before)) wake_sleepers(sleeping_unused, wake_unused);
  }

  void call(int thread) noexcept {
    try {
      (*body)(thread);
    } catch (...) {
      errors[static_cast<size_t>(thread)] = std::current_exception();
    }
  }

  void help(int thread) {
    begin_ordinary_arithmetic();
    for (uint64_t seen = 0;;) {
      wait([&] { return round.load() != seen; }, sleeping_helpers, wake_helpers);
      // A thread that takes part sees every such round, because the next one begins only after it.
      // One that does not may miss rounds, and sleeps apart until the number grows.
      seen = round.load();
      if (thread >= used_in(seen)) {
        wait([&] { return thread < used_in(round.load()); }, sleeping_unused, wake_unused);
        seen = round.load();
      }
      if (stop) return;
      call(thread);
      if (running.fetch_sub(1) == 1) wake_sleepers(sleeping_callers, wake_caller);
    }
  }
};

ThreadPool::ThreadPool(int size) {
  if (size < 1 || size > 1024) {
    throw InvalidArgument("[thread pool] a team has 1 to 1024 threads, received " +
                          std::to_string(size));
  }
  state_ = std::make_unique<State>(size);
  state_->helpers.reserve(static_cast<size_t>(size) - 1);
  for (int thread = 1; thread < size; ++thread) {
    try {
      state_->helpers.emplace_back([state = state_.get(), thread] { state->help(thread); });
    } catch (const std::system_error& error) {
      throw Error("[thread pool] thread " + std::to_string(thread + 1) + " of " +
                      std::to_string(size) + " could not be started: " + error.code().message(),
                  "use fewer threads, or raise the limit on processes (ulimit -u) or on memory "
                  "(ulimit -v)");
    }
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return state_->size; }

void ThreadPool::use(int threads) { state_->used = std::clamp(threads, 1, state_->size); }

int ThreadPool::used() const { return state_->used; }

void ThreadPool::run(const std::function<void(int thread)>& body) {
  State& state = *state_;
  if (state.busy.exchange(true)) {
    throw InvalidArgument("[thread pool] run() was called during another run()");
  }
  state.body = &body;
  const bool alone = state.used == 1;  // no other thread is woken
  state.running.store(state.used - 1);
  if (!alone) state.announce();
  state.call(0);
  if (!alone) {
    state.wait([&] { return state.running.load() == 0; }, state.sleeping_callers,
               state.wake_caller);
  }
  state.body = nullptr;
  std::exception_ptr first;
  for (std::exception_ptr& error : state.errors) {
    if (error && !first) first = error;
    error = nullptr;
  }
  state.busy.store(false);
  if (first) std::rethrow_exception(first);
}

void ThreadPool::for_each(int64_t n, const std::function<void(int64_t i, int thread)>& body) {
  std::atomic<int64_t> next{0};
  struct Failure {
    Mutex mutex;
    int64_t index LOCKSTEP_GUARDED_BY(mutex) = std::numeric_limits<int64_t>::max();
    std::exception_ptr error LOCKSTEP_GUARDED_BY(mutex);
  } failure;
  // Indices are claimed in order, so every index below a failed one has been claimed and is run to
  // its end. The lowest failing index does not depend on the speed of the threads.
  run([&](int thread) {
    for (int64_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) {
      std::exception_ptr error;
      try {
        body(i, thread);
      } catch (...) {
        error = std::current_exception();
      }
      if (!error) continue;
      const MutexLock lock(failure.mutex);
      next.store(n);
      if (i < failure.index) {
        failure.index = i;
        failure.error = error;
      }
    }
  });
  const MutexLock lock(failure.mutex);
  if (failure.error) std::rethrow_exception(failure.error);
}

}  // namespace lockstep
