// Handles for the outcomes of tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/task.h"

namespace lockstep {

namespace detail {

class PoolCore;
struct Task;
using TaskPtr = std::shared_ptr<Task>;

}  // namespace detail

// A future without the type of its task's result. Thread-safe.
class AnyFuture {
 public:
  AnyFuture() = default;
  AnyFuture(std::shared_ptr<detail::PoolCore> pool, detail::TaskPtr task);

  // Whether it refers to a task. If not, everything below throws InvalidArgument.
  bool valid() const { return task_ != nullptr; }
  TaskState state() const;
  bool done() const { return has_ended(state()); }
  // The task's number in its pool, from 1, and the index of the worker that runs or ran it (-1
  // before it runs).
  uint64_t number() const;
  int worker() const;

  // Waits until the task has ended; false at the limit.
  bool wait_for(double seconds) const;
  void wait() const;
  // The reason of a failure or cancellation; "" for other states.
  std::string error() const;
  // The last 64 KiB of the task's output so far. Only in process pools.
  std::string diary() const;

  // Cancels a queued task at once. A running task is asked to stop (see task_cancelled()); after
  // PoolOptions::grace its process is ended and replaced. The task counts as cancelled even if it
  // completes meanwhile. No effect on a task that has ended.
  void cancel() const;

  const std::shared_ptr<detail::PoolCore>& pool() const;
  // Like done(), with the pool's mutex held.
  bool over() const;

 protected:
  // Waits for the task and returns its result as bytes. Rethrows the task's exception.
  Bytes result() const;
  // Calls it in the pool's callback thread when the task has ended.
  void after(std::function<void()> call) const;

 private:
  std::shared_ptr<detail::PoolCore> pool_;
  detail::TaskPtr task_;
};

// The outcome of a task, now or later. A handle: copies refer to the same task. Thread-safe. Every
// task ends in exactly one of the states finished, failed and cancelled. A future may outlive its
// pool.
template <class R>
class Future : public AnyFuture {
 public:
  using AnyFuture::AnyFuture;

  // Waits for the task and returns its result. Rethrows the task's exception, as the same subclass
  // of Error. Throws WorkerLost if its process ended, with the way it ended; Cancelled; Timeout if
  // the task ran for longer than SubmitOptions::limit. May be called repeatedly.
  R get() const {
    const Bytes bytes = result();
    if constexpr (!std::is_void_v<R>) return decode<R>(bytes);
  }

  // Calls f(future) when the task has ended. Callbacks run one after the other in the pool's
  // callback thread; get() does not wait for them. Exceptions of f are dropped: use then() for
  // notifications, not for computation. Objects that f uses must live as long as the pool.
  template <class F>
  const Future& then(F f) const {
    after([f = std::move(f), self = *this]() mutable {
      try {
        f(self);
      } catch (...) {
      }
    });
    return *this;
  }
};

namespace detail {

// The common pool of all futures; null if there are no futures. Throws InvalidArgument for futures
// of several pools.
template <class R>
std::shared_ptr<PoolCore> pool_of(std::span<const Future<R>> futures) {
  std::shared_ptr<PoolCore> pool;
  for (const Future<R>& f : futures) {
    if (pool && f.pool() != pool) {
      throw InvalidArgument(
          "[future] futures that are waited for together must belong to one pool");
    }
    pool = f.pool();
  }
  return pool;
}

// Waits until the condition holds, which is tested with the pool's mutex held; false at the limit.
bool wait_until(PoolCore& pool, double seconds, const std::function<bool()>& holds);

}  // namespace detail

// Waits for all; false at the limit. Throws InvalidArgument for futures of several pools, like
// every function here that takes several futures. Thread-safe.
template <class R>
bool wait_for_all(std::span<const Future<R>> futures, double seconds) {
  const auto pool = detail::pool_of(futures);
  const auto over = [&] {
    for (const auto& f : futures) {
      if (!f.over()) return false;
    }
    return true;
  };
  return !pool || detail::wait_until(*pool, seconds, over);
}

// All results, in order. Throws what get() of the first failed future throws.
template <class R>
auto fetch_all(const std::vector<Future<R>>& futures) {
  while (!wait_for_all(std::span<const Future<R>>(futures), 3600)) {
  }
  if constexpr (std::is_void_v<R>) {
    for (const auto& f : futures) f.get();
  } else {
    std::vector<R> results;
    for (const auto& f : futures) results.push_back(f.get());
    return results;
  }
}

template <class R>
void cancel_all(const std::vector<Future<R>>& futures) {
  for (const auto& f : futures) f.cancel();
}

// Returns futures one by one as their tasks end. One thread at a time.
template <class R>
class FetchNext {
 public:
  explicit FetchNext(std::vector<Future<R>> futures)
      : futures_(std::move(futures)),
        pool_(detail::pool_of(std::span<const Future<R>>(futures_))),
        given_(futures_.size(), false) {}

  // The index of the next future that has ended; none at the limit, or when all were returned.
  std::optional<size_t> next(double seconds = 3e9) {
    std::optional<size_t> found;
    const auto look = [&] {
      for (size_t i = 0; i < futures_.size() && !found; ++i) {
        if (!given_[i] && futures_[i].over()) found = i;
      }
      return found.has_value();
    };
    if (left() > 0) detail::wait_until(*pool_, seconds, look);
    if (found) given_[*found] = true;
    return found;
  }
  size_t left() const {
    return static_cast<size_t>(std::count(given_.begin(), given_.end(), false));
  }
  const Future<R>& operator[](size_t i) const { return futures_[i]; }

 private:
  std::vector<Future<R>> futures_;
  std::shared_ptr<detail::PoolCore> pool_;
  std::vector<bool> given_;
};

// Calls f(futures) when all have ended, like Future::then(). Does nothing if there are no futures.
template <class R, class F>
void after_all(std::vector<Future<R>> futures, F f) {
  if (!detail::pool_of(std::span<const Future<R>>(futures))) return;
  auto left = std::make_shared<size_t>(futures.size());
  auto all = std::make_shared<std::vector<Future<R>>>(std::move(futures));
  auto call = std::make_shared<F>(std::move(f));
  for (const auto& future : *all) {
    // All callbacks run in one thread, so the counter needs no lock.
    future.then([left, all, call](const Future<R>&) {
      if (--*left == 0) (*call)(*all);
    });
  }
}

}  // namespace lockstep
