#include "apps/lockstep/batch/cluster_validation.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/lockstep/batch/login_jobs.h"
#include "apps/lockstep/batch/slurm_validation.h"
#include "apps/lockstep/batch/validation_steps.h"
#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/cluster/profiles/cluster_profile.h"
#include "lockstep/parallel/pool/spmd.h"

namespace lockstep::command {
namespace {

constexpr double exchange_limit = 60;  // seconds
constexpr int block_words = 1 << 20;

std::vector<uint32_t> words_of_worker(int worker) {
  std::vector<uint32_t> words(block_words);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<uint32_t>(i * 2654435761U + static_cast<size_t>(worker));
  }
  return words;
}

// Each worker sends known values to all. Returns the bytes that each received.
int64_t exchange_here(Spmd& block) {
  const auto all = block.gather(words_of_worker(block.index()));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != words_of_worker(static_cast<int>(i))) {
      throw DataError(fmt::format("[cluster] worker {} received other values than worker {} sent",
                                  block.index(), i));
    }
  }
  return static_cast<int64_t>(all.size()) * block_words * static_cast<int64_t>(sizeof(uint32_t));
}

// Bytes per second that each worker receives when all exchange with all.
double measure_here(Spmd& block) {
  constexpr int rounds = 4;
  const std::vector<uint32_t> mine = words_of_worker(block.index());
  block.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) block.gather(mine);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return rounds * static_cast<double>(block.size()) * block_words * sizeof(uint32_t) /
         taken.count();
}

void validate_local(const ClusterProfile& profile, ValidationSteps& steps) {
  std::unique_ptr<Pool> pool;
  steps.step("processors", "", [&] {
    const int64_t wanted = profile.workers * profile.threads;
    const int have = available_cores();
    return fmt::format("{} for {} workers of {} threads{}", have, profile.workers, profile.threads,
                       wanted > have ? ": the workers will share them" : "");
  });
  steps.step("start workers", "fewer workers need less memory: --workers N", [&] {
    pool = std::make_unique<Pool>(
        PoolOptions{.workers = static_cast<int>(profile.workers),
                    .threads_per_worker = static_cast<int>(profile.threads)});
    spmd_with({.limit = exchange_limit}, *pool, [](Spmd& block) { block.barrier(); });
    return fmt::format("{} workers", profile.workers);
  });
  steps.step("exchange", "shared memory is limited: df /dev/shm, ulimit -a", [&] {
    const auto received = spmd_with({.limit = exchange_limit}, *pool,
                                    [](Spmd& block) { return exchange_here(block); });
    return fmt::format("{} MiB to each worker, compared", received.front() >> 20);
  });
  steps.step("bandwidth", "", [&] {
    const auto measured = spmd_with({.limit = exchange_limit}, *pool,
                                    [](Spmd& block) { return measure_here(block); });
    const double lowest = *std::min_element(measured.begin(), measured.end());
    steps.facts()["bytes_per_second"] = lowest;
    return fmt::format("each worker receives {:.2f} GB/s", lowest / 1e9);
  });
  steps.step("clean up", "", [&] {
    pool.reset();
    return std::string("workers ended");
  });
}

}  // namespace

int validate_cluster(const ValidationArguments& a) {
  catch_stop_signals("ending");
  const ClusterProfile profile = read_cluster_profile(a.name);
  if (!profile.login.empty()) return validate_by_login(a);
  ValidationSteps steps(cluster_profile_name_of(a.name), a.json);
  try {
    if (profile.scheduler == "local") {
      validate_local(profile, steps);
    } else {
      validate_slurm(profile, a.patience, steps);
    }
  } catch (const Cancelled& stopped) {
    steps.finish(false);
    print_error(stopped.what(), "what it had submitted was cancelled");
    return exit_stopped;
  } catch (const Error&) {
    steps.finish(false);
    throw;
  }
  steps.finish(true);
  return 0;
}

}  // namespace lockstep::command
