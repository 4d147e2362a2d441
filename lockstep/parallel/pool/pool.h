// Pools of workers that run functions: threads of this process, processes of this machine, or
// processes on the nodes of a cluster.
//
//   lockstep::Pool pool({.workers = 4});
//   auto future = pool.submit([](int a, int b) { return a + b; }, 1, 2);
//   future.get();  // 3
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/parallel/pool/future.h"
#include "lockstep/parallel/pool/task.h"
#include "lockstep/parallel/process/function.h"

namespace lockstep {

struct PoolOptions {
  int workers = 0;  // 0: one for each processor
  // Threads share all memory and cannot be killed: a task that crashes ends the program. Processes
  // need a Runtime in main(); a crash of one does not affect the others.
  bool threads = false;
  int threads_per_worker = 1;  // processors for each worker process, if there are enough
  double grace = 5;            // seconds from cancel() until a process is ended
  uint64_t memory_bytes = 0;   // limit for the data of each worker process; 0: no limit
  std::vector<std::pair<std::string, std::string>> environment = {};  // of worker processes
  uint64_t seed = 0;                                                  // of task_random()
  // Name of the profile of a cluster (`lockstep cluster add`): the workers are processes on the
  // cluster's nodes. The profile sets their number and threads, so `workers`, `threads` and
  // `threads_per_worker` must have their defaults. "": this machine.
  std::string cluster = {};
};

// Whether f(arguments...) can be sent to a worker: f captures nothing, and the arguments and the
// result have serialize().
template <class F, class... A>
inline constexpr bool can_be_submitted = [] {
  if constexpr (!detail::is_stateless_v<F> || !(detail::can_be_sent<detail::Sent<A>> && ...)) {
    return false;
  } else if constexpr (!std::is_invocable_v<F, detail::Sent<A>...>) {
    return false;
  } else {
    return detail::can_be_sent<std::invoke_result_t<F, detail::Sent<A>...>>;
  }
}();

// Thread-safe. The destructor cancels all tasks that have not ended, and ends the workers. The
// workers also end with this process, however it ends.
class Pool {
 public:
  // Returns while the workers start. On a cluster it first submits them to the scheduler, whose
  // commands get 30 seconds each. Throws InvalidArgument for processes without a Runtime, for
  // counts out of range, for an unknown cluster and for options that the profile sets, Error if the
  // scheduler refuses the workers, Timeout if it does not answer, and FileError if the files for
  // the nodes cannot be written.
  explicit Pool(const PoolOptions& options = {});
  // Owns a core that was made elsewhere. Only for use by the library.
  explicit Pool(std::shared_ptr<detail::PoolCore> core);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const;  // number of workers
  // More workers: starts them. Fewer workers: the last ones end once they have completed their
  // running tasks and the tasks that were submitted to them by index. Throws InvalidArgument for a
  // pool on a cluster, and for a number out of range.
  void resize(int workers);
  // The status of every worker, by index.
  std::vector<WorkerStatus> workers() const;

  // Makes a file or folder available to all workers by its name without folders, for tasks
  // submitted from now on. In a task, attached_file() returns its path. The nodes of a cluster get
  // a copy, which exists as long as the pool. Throws InvalidArgument if the file does not exist, or
  // if another attached file has the same name, FileError if it cannot be copied.
  void attach_file(const std::string& path);

  // Runs f(arguments...) on a worker. `f` is a lambda that captures nothing or another function
  // object without state, or any function as in submit<&function>(arguments...). The compiler
  // rejects others, because only the type of `f` is sent: what `f` needs are its arguments.
  // Arguments and result are sent as bytes (serialize.h). A task that waits for other tasks of its
  // own pool may wait forever, since no worker may be free to run them.
  template <class F, class... A>
  auto submit(F f, const A&... arguments) {
    return submit_with(SubmitOptions{}, f, arguments...);
  }
  template <auto F, class... A>
  auto submit(const A&... arguments) {
    return start(make_call<F>(arguments...), {}, -1);
  }
  template <class F, class... A>
  auto submit_with(const SubmitOptions& options, F f, const A&... arguments) {
    return start(make_call(f, arguments...), options, -1);
  }
  template <auto F, class... A>
  auto submit_with(const SubmitOptions& options, const A&... arguments) {
    return start(make_call<F>(arguments...), options, -1);
  }
  // The same on one worker, by its index, or once on each worker.
  template <class F, class... A>
  auto submit_to(int worker, F f, const A&... arguments) {
    check_worker(worker);
    return start(make_call(f, arguments...), {}, worker);
  }
  template <class F, class... A>
  auto submit_on_all(F f, const A&... arguments) {
    const auto call = make_call(f, arguments...);
    std::vector<decltype(start(call, {}, 0))> futures;
    for (int i = 0; i < size(); ++i) futures.push_back(start(call, {}, i));
    return futures;
  }
  template <class R>
  Future<R> start(const Call<R>& call, const SubmitOptions& options, int worker,
                  std::function<void()> on_failure = {}) {
    static_assert(detail::can_be_sent<R>,
                  "lockstep: what the function returns cannot be sent: its type "
                  "needs serialize()");
    return {core_,
            submit_call(call.function(), call.arguments(), options, worker, std::move(on_failure))};
  }

  const std::shared_ptr<detail::PoolCore>& core() const { return core_; }

 private:
  void check_worker(int worker) const;
  detail::TaskPtr submit_call(const FunctionId& function, const Bytes& arguments,
                              const SubmitOptions& options, int worker,
                              std::function<void()> on_failure) const;

  std::shared_ptr<detail::PoolCore> core_;
};

// The default pool: the pool that was opened first among those still open. If there is none, opens
// a process pool (a thread pool in programs without a Runtime) with a worker for each processor,
// and passes one line about it to `notice`. That pool lives until the program ends. Thread-safe.
Pool& default_pool(const std::function<void(const std::string&)>& notice = {});

}  // namespace lockstep
