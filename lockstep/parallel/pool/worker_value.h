// Values that stay on the workers of a pool between tasks, such as networks or caches of images
// that are costly to transfer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/pool.h"

namespace lockstep {

namespace detail {

// Unique in the program.
uint64_t next_value_number();
// Values of this process, by number and worker: each thread of a thread pool has its own value.
std::shared_ptr<void> kept_value(uint64_t number, int worker);
void keep_value(uint64_t number, int worker, std::shared_ptr<void> value);
void drop_value(uint64_t number, int worker);
// Drops the values of all workers in its destructor.
std::shared_ptr<void> owner_of_values(Pool& pool, uint64_t number);

}  // namespace detail

// One value on each worker. A handle, which is passed to tasks as an argument. The values are
// dropped with the last copy of the handle that make_on_workers() returned, as soon as workers are
// free. Thread-safe, except for the value itself: its tasks must synchronize access to it.
template <class T>
class WorkerValue {
 public:
  WorkerValue() = default;

  // In a task: the value of the worker that runs it. Throws InvalidArgument outside of tasks, and
  // on a worker that was started after the values were made (as a replacement, or by resize()).
  T& local() const {
    const auto kept = detail::kept_value(number_, task_worker());
    if (!kept) {
      throw InvalidArgument("[pool] worker " + std::to_string(task_worker()) +
                            " does not have the value");
    }
    return *static_cast<T*>(kept.get());
  }
  // On the client: a copy of a worker's value, by the worker's index. Throws InvalidArgument
  // elsewhere, and rethrows the exceptions of local().
  T fetch(int worker) const {
    if (pool_ == nullptr) throw InvalidArgument("[pool] only the client fetches values of workers");
    const auto copy = [](const WorkerValue& v) { return v.local(); };
    return pool_->submit_to(worker, copy, *this).get();
  }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(number_);
  }

 private:
  template <class F, class... A>
  friend auto make_on_workers(Pool& pool, F f, const A&... arguments);

  uint64_t number_ = 0;
  Pool* pool_ = nullptr;
  std::shared_ptr<void> owner_;  // owner of the values, on the client
};

// Creates f(arguments...) on every worker and keeps it there. `f` has no state (Pool::submit()).
// Waits for all workers. The pool must outlive the value. Throws what f throws.
template <class F, class... A>
auto make_on_workers(Pool& pool, F, const A&... arguments) {
  using T = std::invoke_result_t<F, detail::Sent<A>...>;
  WorkerValue<T> value;
  value.number_ = detail::next_value_number();
  value.pool_ = &pool;
  value.owner_ = detail::owner_of_values(pool, value.number_);
  fetch_all(pool.submit_on_all(
      [](uint64_t number, const detail::Sent<A>&... a) {
        detail::keep_value(number, task_worker(),
                           std::make_shared<T>(detail::function_of_type<F>()(a...)));
      },
      value.number_, arguments...));
  return value;
}

}  // namespace lockstep
