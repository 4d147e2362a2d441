#include "lockstep/train/workers/membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/fingerprint.h"

namespace lockstep {
namespace {

// How long a worker may keep the others waiting: the time of kShards shards or kIterations
// iterations, but at least kLeastLimit seconds. See worker_limit.
constexpr double kLeastLimit = 10, kShards = 20, kIterations = 4;
// Seconds that ready workers wait at the beginning for workers with other tasks.
constexpr double kBusyLimit = 2;
// Seconds for which a computed limit is used: it reads the status of every worker.
constexpr double kLimitPeriod = 0.1;

using Phase = WorkerMember::Phase;

}  // namespace

WorkerMembership::WorkerMembership(const IterationsSetup& setup,
                                   const Call<TrainingProblem>& problem,
                                   const TrainingWorkers& workers)
    : setup_(setup),
      devices_(workers.devices),
      workers_(workers.pool, setup.options),
      lent_(workers.slots) {
  nlohmann::ordered_json object;
  FieldWriter writer(object);
  TrainingOptions copy = setup.options;
  copy.visit(writer);
  task_.problem = problem;
  task_.options = object.dump();
  if (!setup.columns.empty()) task_.columns = setup.columns.to_json().dump();
  names_ = digest_of_names(setup.data);
  if (setup.notice && !workers_.own() && !lent_) {
    setup.notice(fmt::format("{} workers of the open pool compute", setup.options.workers.count));
  }
  if (lent_) {
    follow_lending();
    return;
  }
  workers_.start_together([&] {
    for (int slot = 0; slot < static_cast<int>(setup.options.workers.count); ++slot) start(slot);
  });
}

std::string WorkerMembership::name_of_host(const Member& m) const {
  return host_of(m) == 0 ? "" : pool_.hosts()->status(host_of(m)).name;
}

void WorkerMembership::start(int slot, bool replaces) {
  Member m;
  m.slot = slot;
  m.status_range = ReservedRange(pool_.memory(), sizeof(TrainingWorkerStatus));
  m.status_memory = pool_.memory().map(*m.status_range);
  if (pool_.hosts()) pool_.hosts()->belongs_to(pool_.hosts()->host_of(slot), *m.status_range);
  TrainingTask own = task_;
  // The devices of another host are also assigned in turn.
  const int on_host = pool_.hosts() ? pool_.hosts()->local_rank_of(slot) : slot;
  own.device = to_string(devices_[static_cast<size_t>(on_host) % devices_.size()]);
  if (const auto number = workers_.start(slot, std::move(own), replaces)) {
    members_.emplace(*number, std::move(m));
  } else {
    absent_slots_.push_back(slot);
  }
}

// Starts workers that are lent, and marks those that are lent no longer.
void WorkerMembership::follow_lending() {
  if (!lent_) return;
  std::set<int> wanted;
  for (const int slot : lent_()) {
    if (slot >= 0 && slot < workers_.present()) wanted.insert(slot);
  }
  if (wanted.empty()) return;
  const auto unwanted = [&](int slot) { return wanted.count(slot) == 0; };
  std::erase_if(free_slots_, unwanted);
  std::erase_if(absent_slots_, unwanted);
  std::set<int> present(free_slots_.begin(), free_slots_.end());
  present.insert(absent_slots_.begin(), absent_slots_.end());
  for (auto& [number, m] : members_) {
    const bool gone = m.leaving && m.phase != Phase::member;
    if (gone) continue;
    m.leaving = unwanted(m.slot);
    present.insert(m.slot);
    if (m.leaving && m.phase != Phase::member) release(number);
  }
  for (const int slot : wanted) {
    if (present.count(slot) == 0) start(slot);
  }
}

void WorkerMembership::release(uint32_t worker) {
  constexpr double kReleaseLimit = 60;
  Member& m = members_.at(worker);
  m.leaving = true;
  m.phase = Phase::building;  // it takes no part in groups
  m.built = false;
  m.limit = TimeLimit(kReleaseLimit);
  workers_.cancel(worker);
}

void WorkerMembership::start_replacements(bool replace) {
  follow_lending();
  // The pool may have grown again.
  for (const int slot : std::exchange(absent_slots_, {})) {
    if (slot < workers_.present()) {
      start(slot, true);
    } else {
      absent_slots_.push_back(slot);
    }
  }
  if (!replace) return;
  // A replacement takes the slot that has been free longest.
  for (const int slot : std::exchange(free_slots_, {})) {
    start(slot, true);
    if (!absent_slots_.empty() && absent_slots_.back() == slot && setup_.notice) {
      setup_.notice(fmt::format("the pool has no worker {} any more", slot));
    }
  }
}

// Reported once, so that repeated attempts do not fill the log.
void WorkerMembership::look_for_strangers() {
  if (strangers_reported_ || !setup_.notice) return;
  if (workers_.strangers() == 0) return;
  strangers_reported_ = true;
  setup_.notice(
      "a connection without a key to the workers' control channel was "
      "refused");
}

void WorkerMembership::end_late() {
  for (auto& [number, m] : members_) {
    if (m.phase != Phase::building) continue;
    if (m.pid == 0) {
      // It still has another task.
      m.pid = workers_.pid(number);
      m.limit = TimeLimit(Member::kReadyLimit);
    } else if (m.limit.reached() && !m.built) {
      workers_.kill(number, "was not ready in time");
    }
  }
}

std::optional<PoolWorkerEvent> WorkerMembership::wait(double seconds, bool replace) {
  start_replacements(replace);
  look_for_strangers();
  if (members_.empty() && free_slots_.empty()) {
    throw Error("[workers] the pool has no workers left for the training",
                "resume it to continue with the workers of another pool");
  }
  end_late();
  return workers_.wait(TimeLimit(seconds));
}

WorkerMember WorkerMembership::remove(const PoolWorkerEvent& event) {
  const auto found = members_.find(event.worker);
  Member m = std::move(found->second);
  members_.erase(found);
  if (!m.leaving) free_slots_.push_back(m.slot);
  // A worker on a host that has not connected has never been present.
  if (m.pid != 0 || host_of(m) == 0) {
    gone_.push_back(summary_of(event.worker, m));
    gone_.back().lost = !m.leaving;
    gone_.back().left = m.leaving;
  }
  return m;
}

void WorkerMembership::take(uint32_t worker, const ReadyReport& r) {
  Member& m = members_.at(worker);
  if (m.leaving && m.phase != Phase::member) return;
  std::vector<FingerprintEntry> there;
  for (const auto& [entry, value] : r.fingerprint) there.push_back({entry, value});
  const std::string difference =
      fingerprint_difference(numerics_fingerprint(parse_device(setup_.options.device)), there);
  if (!difference.empty()) {
    throw InvalidArgument("[workers] " + name_of_worker(worker) +
                          " computes with other numerics: " + difference);
  }
  if (r.names != names_) {
    throw InvalidArgument(
        "[workers] " + name_of_worker(worker) + " has different data than its client",
        "the function that makes the problem must return the same data in every "
        "process, and folders must not change meanwhile");
  }
  if (!ready_) ready_ = r;
  m.built = true;
}

void WorkerMembership::take(const NoticeReport& r) {
  if (noticed_.insert(r.text).second && setup_.notice) setup_.notice(r.text);
}

bool WorkerMembership::changes() const {
  bool joins = false, leaves = false, stays = false;
  for (const auto& [number, m] : members_) {
    joins = joins || m.phase == Phase::ready;
    leaves = leaves || (m.phase == Phase::member && m.leaving);
    stays = stays || (m.phase == Phase::member && !m.leaving);
  }
  return joins || (leaves && stays);
}

WorkerSummary WorkerMembership::summary_of(uint32_t worker, const Member& m) const {
  const TrainingWorkerStatus& status = m.status();
  return {.worker = worker,
          .pid = m.pid,
          .shards = status.computed.load(),
          .lost = false,
          .host = name_of_host(m),
          .shard_seconds = status.shard_seconds.load(),
          .iteration_seconds = status.iteration_seconds.load()};
}

bool WorkerMembership::others_began(uint32_t worker) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.first != worker && workers_.pid(entry.first) != 0;
  });
}

bool WorkerMembership::awaits_first() {
  std::string busy;
  bool building = !free_slots_.empty();
  const std::vector<WorkerStatus> slots = pool_.slots();
  for (const auto& [number, m] : members_) {
    if (m.phase != Phase::building) continue;
    if (building) break;
    if (m.pid != 0 || !workers_.busy(number, slots)) {
      building = true;
    } else {
      busy += fmt::format("{}{}", busy.empty() ? "" : ", ", m.slot);
    }
  }
  const bool stop = setup_.stop && setup_.stop();
  // Other hosts may take a long time to start.
  if (building && stop && pool_.hosts() != nullptr) {
    throw Cancelled("[training] the training was stopped before its hosts were ready");
  }
  if (building && setup_.interrupted && setup_.interrupted()) {
    throw Cancelled("[training] the training was stopped before its workers were ready",
                    "no iteration had begun, so nothing is lost");
  }
  if (building && pool_.hosts() != nullptr && setup_.notice) {
    std::string awaited = pool_.hosts()->waits_for();
    if (!awaited.empty() && awaited != awaited_) setup_.notice("waits for " + awaited);
    awaited_ = std::move(awaited);
  }
  if (building) return true;
  if (busy.empty()) return false;
  if (!ready_) {
    if (!stop) return true;
    throw Cancelled("[training] the training was stopped while the pool's workers had other tasks");
  }
  if (!patience_) patience_.emplace(kBusyLimit);
  if (!stop && !patience_->reached()) return true;
  if (!std::exchange(busy_reported_, true) && setup_.notice) {
    setup_.notice("the pool's workers " + busy +
                  " have other tasks: the training begins without them");
  }
  return false;
}

double WorkerMembership::limit() const {
  if (setup_.options.workers.limit > 0) return setup_.options.workers.limit;
  if (limit_known_ && !limit_known_->reached()) return limit_;
  limit_known_.emplace(kLimitPeriod);
  limit_ = present_limit();
  return limit_;
}

double WorkerMembership::present_limit() const {
  std::vector<double> seconds;
  for (const auto& [number, m] : members_) {
    const TrainingWorkerStatus& status = m.status();
    // A worker that has many shards, or computes all of them at once, is not slow.
    const double last = std::max(kShards * status.shard_seconds.load(),
                                 kIterations * status.iteration_seconds.load());
    if (last > 0) seconds.push_back(last);
  }
  // The first iteration may include preparation.
  if (seconds.empty()) return Member::kReadyLimit;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::max(kLeastLimit, *middle);
}

std::vector<WorkerSummary> WorkerMembership::summaries() const {
  std::vector<WorkerSummary> all = gone_;
  for (const auto& [number, m] : members_) {
    // Some may have had other tasks all the time.
    if (m.pid != 0) all.push_back(summary_of(number, m));
  }
  std::sort(all.begin(), all.end(),
            [](const WorkerSummary& a, const WorkerSummary& b) { return a.worker < b.worker; });
  return all;
}

}  // namespace lockstep
