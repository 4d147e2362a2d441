#include "lockstep/train/workers/membership/worker_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

using Clock = TimeLimit::Clock;

// Limits: how often one shard may be computed differently, and how many ends in a row each worker
// may have without an iteration, by its own fault or from outside.
constexpr int kDisagreements = 3;
constexpr int64_t kLossesInARow = 10, kKillsInARow = 30;
// The longest pause before workers are started again, seconds.
constexpr double kLongestPause = 6.4;
// How often in a row workers may fail to form a group before an iteration is finished.
constexpr int kRendezvousAttempts = 4;

}  // namespace

void WorkerLosses::report(int64_t members) {
  for (Loss& loss : losses_) {
    loss.change.seconds = std::chrono::duration<double>(Clock::now() - loss.noticed).count();
    loss.change.members = members;
    if (setup_.on_change) setup_.on_change(loss.change);
  }
  losses_.clear();
}

void WorkerLosses::count(const PoolWorkerEvent& event) {
  ++(event.outside ? kills_in_a_row_ : losses_in_a_row_);
  if (losses_in_a_row_ >= kLossesInARow * setup_.options.workers.count ||
      kills_in_a_row_ >= kKillsInARow * setup_.options.workers.count) {
    throw Error(fmt::format("[workers] {} workers in a row were lost before an iteration was "
                            "finished; the last one {}",
                            losses_in_a_row_ + kills_in_a_row_, event.how),
                "the system log (dmesg) may show the reason");
  }
  // The first replacements start immediately, later ones after growing pauses.
  const int64_t rounds = (losses_in_a_row_ + kills_in_a_row_) / setup_.options.workers.count;
  const double delay = rounds < 3 ? 0 : 0.1 * std::exp2(static_cast<double>(rounds - 3));
  restart_.emplace(std::min(delay, kLongestPause));
}

void WorkerLosses::count_failed_rendezvous(const std::string& why) {
  const std::string text = "the workers did not form a group: " + why;
  if (++failed_rendezvous_ == kRendezvousAttempts) {
    throw Error("[workers] " + text,
                "the workers' hosts and GPUs must reach each other on all ports");
  }
  if (failed_rendezvous_ == 1 && setup_.notice) setup_.notice(text + "; a new attempt follows");
}

void WorkerLosses::advance_to(int64_t iteration) {
  if (iteration <= furthest_) return;
  furthest_ = iteration;
  losses_in_a_row_ = kills_in_a_row_ = 0;
  failed_rendezvous_ = 0;
}

void WorkerLosses::blame(const TrainingWorkerStatus& status, const std::string& how) {
  const int64_t iteration = status.iteration.load();
  std::set<int64_t> shards;
  const int64_t most = std::max(setup_.options.threads, setup_.options.streams);
  for (int64_t t = 0; t < std::min<int64_t>(most, TrainingWorkerStatus::kThreads); ++t) {
    const IndexRange computed = decoded_shards(status.shards[t].load());
    for (int64_t i = 0; i < computed.count; ++i) shards.insert(computed.first + i);
  }
  const auto convicted = deaths_.note(iteration, {shards.begin(), shards.end()}, alone_);
  if (!convicted) return;
  throw Error(
      fmt::format("[workers] shard {} of iteration {} has ended {} workers, the last time computed "
                  "alone; the last one {}; its observations are: {}",
                  *convicted + 1, iteration, ShardDeaths::kConvicted, how,
                  observations_of(iteration, *convicted)),
      "try these observations alone, in one process");
}

void WorkerLosses::count_disagreement(const DisagreementReport& r) {
  if (r.faulty.empty() || ++disagreements_[{r.iteration, r.shard}] == kDisagreements) {
    throw Error(r.message, r.hint);
  }
}

// "a.png, b.png"
std::string WorkerLosses::observations_of(int64_t iteration, int64_t shard) const {
  const Datastore& data = *setup_.data.training;
  const MiniBatchQueueOptions queue = mini_batches_of(setup_.data, setup_.options);
  const std::vector<int64_t> all = lockstep::observations_of(data, queue, iteration - 1);
  const IndexRange range = cut_into_shards(static_cast<int64_t>(all.size()),
                                           setup_.options.shards.size)[static_cast<size_t>(shard)];
  std::string text;
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t observation = all[static_cast<size_t>(range.first + i)];
    text += (i > 0 ? ", " : "") + data.name(observation);
  }
  return text;
}

}  // namespace lockstep
