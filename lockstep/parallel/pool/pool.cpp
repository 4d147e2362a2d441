#include "lockstep/parallel/pool/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/process/host_support.h"
#include "lockstep/parallel/process/worker_context.h"

namespace lockstep {
namespace {

constexpr int kMostWorkers = 1024;

struct OpenPool {
  Pool* pool;
  bool threads;
};
Mutex open_mutex;
std::vector<OpenPool> open_pools LOCKSTEP_GUARDED_BY(open_mutex);

int workers_of(int wanted) {
  if (wanted < 0 || wanted > kMostWorkers) {
    throw InvalidArgument(
        fmt::format("[pool] {} workers: the number must be 1 to {}", wanted, kMostWorkers),
        "0 means one for each processor");
  }
  return wanted > 0 ? wanted : std::min(available_cores(), kMostWorkers);
}

void attach_to(detail::PoolCore& core, const std::string& path) {
  std::error_code failed;
  const auto whole = std::filesystem::canonical(path, failed);
  if (failed) {
    throw InvalidArgument("[pool] " + path + " cannot be attached: " + failed.message());
  }
  core.attach(whole.filename().string(), whole.string());
}

// Workers on the nodes of a cluster.
std::shared_ptr<detail::PoolCore> make_cluster_pool(const PoolOptions& options) {
  if (options.threads || options.workers != 0 || options.threads_per_worker != 1) {
    throw InvalidArgument(
        "[pool] workers and threads of a pool on a cluster are those of its profile",
        "leave workers, threads and threads_per_worker as they are");
  }
  detail::ClusterPool pool = detail::host_support().cluster_pool(options.cluster);
  pool.options.grace = options.grace;
  pool.options.memory_bytes = options.memory_bytes;
  pool.options.environment = options.environment;
  auto core = detail::make_process_pool(pool.options);
  try {
    for (const std::string& path : pool.attach) attach_to(*core, path);
  } catch (...) {
    core->stop();
    throw;
  }
  return core;
}

std::shared_ptr<detail::PoolCore> make_core(const PoolOptions& options, int workers) {
  if (!options.cluster.empty()) return make_cluster_pool(options);
  if (options.threads) return detail::make_thread_pool(workers);
  return detail::make_process_pool({.workers = workers,
                                    .threads = options.threads_per_worker,
                                    .grace = options.grace,
                                    .memory_bytes = options.memory_bytes,
                                    .environment = options.environment});
}

}  // namespace

Pool::Pool(const PoolOptions& options) {
  const int workers = workers_of(options.workers);
  if (options.threads_per_worker < 1) {
    throw InvalidArgument(fmt::format("[pool] threads_per_worker must be >= 1, received {}",
                                      options.threads_per_worker));
  }
  if (!(options.grace >= 0)) {
    throw InvalidArgument(fmt::format("[pool] grace must be >= 0, received {:g}", options.grace));
  }
  core_ = make_core(options, workers);
  core_->seed = options.seed;
  const MutexLock lock(open_mutex);
  open_pools.push_back({this, options.threads});
}

Pool::Pool(std::shared_ptr<detail::PoolCore> core) : core_(std::move(core)) {
  const MutexLock lock(open_mutex);
  open_pools.push_back({this, false});
}

Pool::~Pool() {
  {
    const MutexLock lock(open_mutex);
    std::erase_if(open_pools, [this](const OpenPool& open) { return open.pool == this; });
  }
  core_->stop();
}

int Pool::size() const { return core_->size(); }

std::vector<WorkerStatus> Pool::workers() const { return core_->slots(); }

void Pool::resize(int workers) {
  if (core_->hosts() != nullptr) {
    throw InvalidArgument("[pool] the size of a pool on a cluster does not change");
  }
  core_->resize(workers_of(workers));
}

void Pool::attach_file(const std::string& path) { attach_to(*core_, path); }

void Pool::check_worker(int worker) const {
  if (worker >= 0 && worker < size()) return;
  throw InvalidArgument(fmt::format("[pool] there is no worker {} among {}", worker, size()));
}

detail::TaskPtr Pool::submit_call(const FunctionId& function, const Bytes& arguments,
                                  const SubmitOptions& options, int worker,
                                  std::function<void()> on_failure) const {
  return core_->submit(function, arguments, options, worker, std::move(on_failure));
}

std::shared_ptr<detail::PoolCore> detail::open_process_pool() {
  const MutexLock lock(open_mutex);
  for (const OpenPool& open : open_pools) {
    if (!open.threads) return open.pool->core();
  }
  return nullptr;
}

Pool& default_pool(const std::function<void(const std::string&)>& notice) {
  static Mutex one_at_a_time;
  const MutexLock once(one_at_a_time);
  {
    const MutexLock lock(open_mutex);
    if (!open_pools.empty()) return *open_pools.front().pool;
  }
  static std::unique_ptr<Pool> own LOCKSTEP_GUARDED_BY(one_at_a_time);
  own = std::make_unique<Pool>(PoolOptions{.threads = !has_runtime()});
  if (notice) {
    notice(fmt::format("a pool of {} worker {} was opened", own->size(),
                       has_runtime() ? "processes" : "threads"));
  }
  return *own;
}

}  // namespace lockstep
