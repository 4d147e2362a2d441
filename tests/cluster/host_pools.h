// Pools whose workers are on several hosts, for tests. By default these are processes on the
// loopback, started by env(1), which runs a command as ssh would.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "tests/base/waiting.h"

namespace lockstep::testing_hosts {

using detail::PoolHost;
using detail::ProcessPoolOptions;
using detail::TaskPtr;

using testing::kLimit;

struct HostPool {
  explicit HostPool(std::vector<PoolHost> hosts, const std::string& launch = "env HOST={host}") {
    ProcessPoolOptions options;
    options.workers = 0;
    for (const PoolHost& host : hosts) options.workers += host.workers;
    options.hosts = std::move(hosts);
    options.launch = launch;
    options.address = "127.0.0.1";
    core = detail::make_process_pool(options);
  }
  ~HostPool() { core->stop(); }

  template <auto F, class... A>
  TaskPtr submit_to(int slot, const A&... arguments) {
    const auto call = make_call<F>(arguments...);
    return core->submit(call.function(), call.arguments(), {}, slot);
  }
  void wait(const TaskPtr& task) const {
    if (!core->wait(TimeLimit(kLimit), [&] { return has_ended(task->state); })) {
      throw Timeout("[test] a task does not end");
    }
  }
  void wait_until_it_runs(const TaskPtr& task) const {
    for (const TimeLimit limit(kLimit); !limit.reached();) {
      {
        const MutexLock lock(core->mutex);
        if (task->state != TaskState::queued) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw Timeout("[test] a task does not begin");
  }
  template <class R>
  R result(const TaskPtr& task) const {
    wait(task);
    if (task->state != TaskState::finished) throw Error(task->error.message);
    return decode<R>(task->result);
  }

  std::shared_ptr<detail::PoolCore> core;
};

inline std::vector<PoolHost> here_and_two() { return {{"", 1}, {"one", 2}, {"two", 1}}; }

// The variable HOST, the process and its parent.
inline std::tuple<std::string, int64_t, int64_t> where() {
  const char* const host = getenv("HOST");
  return {host ? host : "", getpid(), getppid()};
}

inline std::string host_of(const HostPool& pool, const TaskPtr& task) {
  return std::get<0>(pool.result<std::tuple<std::string, int64_t, int64_t>>(task));
}

}  // namespace lockstep::testing_hosts
