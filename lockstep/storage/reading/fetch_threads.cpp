#include "lockstep/storage/reading/fetch_threads.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"

namespace lockstep::storage {

struct FetchThreads::State {
  const int count;
  const size_t at_once;
  const std::function<void(const std::vector<int64_t>&)> fetch;
  Mutex mutex;
  ConditionVariable wanted;
  std::deque<int64_t> queue LOCKSTEP_GUARDED_BY(mutex);
  std::vector<std::thread> threads LOCKSTEP_GUARDED_BY(mutex);
  bool ending LOCKSTEP_GUARDED_BY(mutex) = false;

  State(int n, size_t together, std::function<void(const std::vector<int64_t>&)> f)
      : count(n), at_once(together), fetch(std::move(f)) {}

  void serve() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    while (!ending) {
      if (queue.empty()) {
        wanted.wait_until(mutex, TimeLimit(1));
        continue;
      }
      std::vector<int64_t> numbers;
      while (!queue.empty() && numbers.size() < at_once) {
        numbers.push_back(queue.front());
        queue.pop_front();
      }
      const MutexUnlock unlocked(mutex);
      fetch(numbers);
    }
  }
};

FetchThreads::FetchThreads(int threads, size_t at_once,
                           std::function<void(const std::vector<int64_t>&)> fetch)
    : state_(std::make_unique<State>(threads, at_once, std::move(fetch))) {}

FetchThreads::~FetchThreads() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(state_->mutex);
    state_->ending = true;
    state_->wanted.notify_all();
    threads.swap(state_->threads);
  }
  for (std::thread& thread : threads) thread.join();
}

void FetchThreads::ask(int64_t number) {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  while (static_cast<int>(s.threads.size()) < s.count) {
    s.threads.emplace_back([&s] { s.serve(); });
  }
  s.queue.push_back(number);
  s.wanted.notify_one();
}

void FetchThreads::hurry(int64_t number) {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  const auto found = std::find(s.queue.begin(), s.queue.end(), number);
  if (found == s.queue.end()) return;
  s.queue.erase(found);
  s.queue.push_front(number);
}

}  // namespace lockstep::storage
