// Starts, losses and replacements of workers: see membership.h.
#include "lockstep/train/workers/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/train/input/mini_batches.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/step/shards.h"

namespace lockstep {
namespace {

using Clock = TimeLimit::Clock;

// How long a worker may keep the others waiting: the time of kShards shards or kIterations
// iterations, but at least kLeastLimit seconds. See worker_limit.
constexpr double kLeastLimit = 10, kShards = 20, kIterations = 4;
// Limits: how often one shard may be computed differently, and how many ends in a row each worker
// may have without an iteration, by its own fault or from outside.
constexpr int kDisagreements = 3;
constexpr int64_t kLossesInARow = 10, kKillsInARow = 30;
// The longest pause before workers are started again, seconds.
constexpr double kLongestPause = 6.4;
// How often in a row workers may fail to form a group before an iteration is finished.
constexpr int kRendezvousAttempts = 4;

// The last part of the text, short enough for a log.
std::string last_lines(std::string text) {
  constexpr size_t kMost = 1000;
  if (text.size() > kMost) text.erase(0, text.size() - kMost);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

WorkerMembership::WorkerMembership(const WorkerIterationsSetup& s)
    : setup(s), workers(setup.pool, setup.options) {
  nlohmann::ordered_json object;
  FieldWriter writer(object);
  TrainingOptions copy = setup.options;
  copy.visit(writer);
  task.problem = setup.problem;
  task.options = object.dump();
  names = digest_of_names(setup.data);
  if (setup.notice && !workers.own()) {
    setup.notice(fmt::format("{} workers of the open pool compute", setup.options.workers));
  }
  workers.start_together([&] {
    for (int slot = 0; slot < static_cast<int>(setup.options.workers); ++slot) start_worker(slot);
  });
}

WorkerMembership::~WorkerMembership() {
  // Ends members that wait for others immediately.
  if (group) group->end();
  workers.end();
}

SharedPlace WorkerMembership::reserve(size_t bytes) {
  return *reserved.emplace_back(memory, bytes);
}

void WorkerMembership::start_worker(int slot, bool replaces) {
  Member m;
  m.slot = slot;
  m.status_place = ReservedPlace(memory, sizeof(TrainingWorkerStatus));
  m.status_memory = memory.map(*m.status_place);
  TrainingTask own = task;
  // The devices of another host are also assigned in turn.
  const int on_host = pool.hosts() ? pool.hosts()->local_rank_of(slot) : slot;
  own.device = to_string(setup.devices[static_cast<size_t>(on_host) % setup.devices.size()]);
  if (const auto number = workers.start(slot, std::move(own), replaces)) {
    members.emplace(*number, std::move(m));
  } else {
    absent_slots.push_back(slot);
  }
}

double WorkerMembership::limit() const {
  if (setup.options.worker_limit > 0) return setup.options.worker_limit;
  std::vector<double> seconds;
  for (const auto& [number, m] : members) {
    const TrainingWorkerStatus& status = m.status();
    // A worker that has many shards, or computes all of them at once, is not slow.
    const double last = std::max(kShards * status.shard_seconds.load(),
                                 kIterations * status.iteration_seconds.load());
    if (last > 0) seconds.push_back(last);
  }
  if (seconds.empty()) return kReadyLimit;  // the first iteration may include preparation
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::max(kLeastLimit, *middle);
}

// Handles one event, if one arrives within these seconds.
bool WorkerMembership::step(double seconds) {
  start_replacements();
  look_for_strangers();
  settle();
  if (members.empty() && free_slots.empty()) {
    throw Error("[workers] the pool has no workers left for the training",
                "resume it to continue with the workers of another pool");
  }
  for (auto& [number, m] : members) {
    if (m.phase != Member::Phase::building) continue;
    if (m.pid == 0) {
      // It still has another task.
      m.pid = workers.pid(number);
      m.limit = TimeLimit(kReadyLimit);
    } else if (m.limit.reached() && !m.built) {
      workers.kill(number, "was not ready in time");
    }
  }
  const auto event = workers.wait(TimeLimit(seconds));
  if (event) {
    handle(*event);
    return true;  // while events arrive, no worker counts as late
  }
  return false;
}

// Reported once, so that repeated attempts do not fill the log.
void WorkerMembership::look_for_strangers() {
  if (strangers_reported || !setup.notice) return;
  if (workers.strangers() == 0) return;
  strangers_reported = true;
  setup.notice(
      "a connection without a key to the workers' control channel was "
      "refused");
}

void WorkerMembership::handle(const PoolWorkerEvent& event) {
  const auto found = members.find(event.worker);
  if (found == members.end()) return;
  found->second.pid = event.pid;
  if (event.kind == PoolWorkerEvent::Kind::failed)
    event.error.rethrow(name_of_worker(event.worker) + ": ");
  if (event.kind == PoolWorkerEvent::Kind::lost) {
    // If no worker gets as far as to begin, a replacement would not either.
    const bool others = std::any_of(members.begin(), members.end(), [&](const auto& entry) {
      return entry.first != event.worker && workers.pid(entry.first) != 0;
    });
    const bool far = host_of(found->second) != 0;
    if (event.pid == 0 && !event.cancelled && (far ? generation == 0 : !ready && !others)) {
      throw WorkerLost(name_of_worker(event.worker) + ": " + event.how, event.error.hint);
    }
    return handle_loss(event);
  }
  std::visit([&](const auto& report) { take(event.worker, report); },
             decode<WorkerReport>(event.content));
}

void WorkerMembership::handle_loss(const PoolWorkerEvent& event) {
  const auto found = members.find(event.worker);
  Member m = std::move(found->second);
  members.erase(found);
  if (m.pid == 0 && host_of(m) != 0) return miss_host(m, event.how);
  lost_workers.push_back({event.worker, m.pid, m.status().computed.load(), true});
  free_slots.push_back(m.slot);
  Loss loss{{.worker = event.worker,
             .pid = m.pid,
             .host = name_of_host(m),
             .joined = false,
             .how = event.how,
             .iteration = received,
             .members = 0,
             .seconds = 0},
            Clock::now()};
  if (!event.printed.empty() && setup.notice) {
    setup.notice(name_of_worker(event.worker) + " printed last: " + last_lines(event.printed));
  }
  const bool member = std::find(ranks.begin(), ranks.end(), event.worker) != ranks.end();
  if (member) {
    end_group();
    // If a whole host was lost, the shard is not the cause.
    const int host = host_of(m);
    const bool there = host == 0 || pool.hosts()->status(host).presence == hosts[host].presence;
    if (event.own_fault && there) blame(m, event.how);
  }
  losses.push_back(std::move(loss));
  // Iterations that it did not report count as progress, too.
  advance_to(m.status().iteration.load());
  count_loss(event);
}

// The limits are for each worker, because all workers may end at once. A cause outside the program
// may end only some of them.
void WorkerMembership::count_loss(const PoolWorkerEvent& event) {
  ++(event.outside ? kills_in_a_row : losses_in_a_row);
  if (losses_in_a_row >= kLossesInARow * setup.options.workers ||
      kills_in_a_row >= kKillsInARow * setup.options.workers) {
    throw Error(fmt::format("[workers] {} workers in a row were lost before an iteration was "
                            "finished; the last one {}",
                            losses_in_a_row + kills_in_a_row, event.how),
                "the system log (dmesg) may show the reason");
  }
  // The first replacements start immediately, later ones after growing pauses.
  const int64_t rounds = (losses_in_a_row + kills_in_a_row) / setup.options.workers;
  const double delay = rounds < 3 ? 0 : 0.1 * std::exp2(static_cast<double>(rounds - 3));
  restart.emplace(std::min(delay, kLongestPause));
}

// The host has not come back. It is tried again, and reported once.
void WorkerMembership::miss_host(const Member& m, const std::string& how) {
  free_slots.push_back(m.slot);
  Host& host = hosts[host_of(m)];
  if (!std::exchange(host.missing, true) && setup.notice) {
    setup.notice(how + "; the other workers continue, and a new attempt follows");
  }
}

// Iterations that are computed again are not progress.
void WorkerMembership::advance_to(int64_t iteration) {
  if (iteration <= furthest) return;
  furthest = iteration;
  losses_in_a_row = kills_in_a_row = 0;
  failed_rendezvous = 0;
}

// A worker that ends by its own fault while it computes shards may have ended because of a shard.
void WorkerMembership::blame(const Member& m, const std::string& how) {
  const TrainingWorkerStatus& status = m.status();
  const int64_t iteration = status.iteration.load();
  std::set<int64_t> shards;
  const int64_t most = std::max(setup.options.threads, setup.options.streams);
  for (int64_t t = 0; t < std::min<int64_t>(most, TrainingWorkerStatus::kThreads); ++t) {
    const int64_t shard = status.shards[t].load() - 1;
    if (shard >= 0) shards.insert(shard);
  }
  const auto convicted = deaths.note(iteration, {shards.begin(), shards.end()}, alone);
  if (!convicted) return;
  throw Error(
      fmt::format("[workers] shard {} of iteration {} has ended {} workers, the last time computed "
                  "alone; the last one {}; its observations are: {}",
                  *convicted + 1, iteration, ShardDeaths::kConvicted, how,
                  observations_of(iteration, *convicted)),
      "try these observations alone, in one process");
}

// "a.png, b.png"
std::string WorkerMembership::observations_of(int64_t iteration, int64_t shard) const {
  const ImageDatastore& data = *setup.data.training;
  const MiniBatchQueueOptions queue = mini_batches_of(setup.data, setup.options);
  const int64_t per_epoch = batches_per_epoch(data.size(), queue);
  const auto order =
      epoch_order(data.size(), queue.shuffle, queue.seed, (iteration - 1) / per_epoch);
  const int64_t first = (iteration - 1) % per_epoch * queue.mini_batch_size;
  const int64_t n = std::min(queue.mini_batch_size, data.size() - first);
  const IndexRange range = cut_into_shards(n, setup.options.shard_size)[static_cast<size_t>(shard)];
  std::string text;
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t observation = order[static_cast<size_t>(first + range.first + i)];
    text += (i > 0 ? ", " : "") + data.name(observation);
  }
  return text;
}

void WorkerMembership::start_replacements() {
  // The pool may have grown again.
  for (const int slot : std::exchange(absent_slots, {})) {
    if (slot < workers.present()) {
      start_worker(slot, true);
    } else {
      absent_slots.push_back(slot);
    }
  }
  if (restart && !restart->reached()) return;
  // A replacement takes the slot that has been free longest.
  for (const int slot : std::exchange(free_slots, {})) {
    start_worker(slot, true);
    if (!absent_slots.empty() && absent_slots.back() == slot && setup.notice) {
      setup.notice(fmt::format("the pool has no worker {} any more", slot));
    }
  }
}

void WorkerMembership::take(uint32_t worker, const ReadyReport& r) {
  Member& m = members.at(worker);
  std::vector<FingerprintEntry> there;
  for (const auto& [entry, value] : r.fingerprint) there.push_back({entry, value});
  const std::string difference =
      fingerprint_difference(numerics_fingerprint(parse_device(setup.options.device)), there);
  if (!difference.empty()) {
    throw InvalidArgument("[workers] " + name_of_worker(worker) +
                          " computes with other numerics: " + difference);
  }
  if (r.names != names) {
    throw InvalidArgument("[workers] " + name_of_worker(worker) + " has other data than its client",
                          "the function that makes the problem must return the same data in every "
                          "process, and folders must not change meanwhile");
  }
  if (!ready) ready = r;
  m.built = true;
  settle();
}

// Messages between the first members of hosts go through the client.
void WorkerMembership::take(uint32_t worker, const RendezvousReport& r) {
  if (r.generation != generation || !group) return;
  for (const size_t rank : group->first_ranks()) {
    if (ranks[rank] != worker) order(ranks[rank], RendezvousOrder{r.generation, r.key, r.value});
  }
}

void WorkerMembership::take(uint32_t worker, const RecordsReport& r) {
  if (r.generation != generation) return;
  for (const IterationOutcome& record : r.records) {
    const auto [known, is_new] = digests.emplace(record.iteration, record.digest);
    if (known->second != record.digest) {
      throw Error(
          fmt::format("[workers] after iteration {} {} has the digest {}, others {}",
                      record.iteration, name_of_worker(worker), record.digest.to_string(),
                      known->second.to_string()),
          "the processors compute different results: a hardware fault, or a fault in a custom "
          "layer");
    }
    if (record.iteration <= received) continue;
    arrived.emplace(record.iteration, record);
  }
  // Messages of one worker may arrive before earlier messages of another worker.
  for (auto next = arrived.begin(); next != arrived.end() && next->first <= received + 1;
       next = arrived.erase(next)) {
    if (next->first <= received) continue;
    received = next->first;
    progress = Clock::now();
    advance_to(received);
    deaths.finished(received);
    iteration_seconds = next->second.seconds;
    if (received > taken) records.emplace(received, next->second);
  }
  while (digests.size() > 4096) digests.erase(digests.begin());
}

void WorkerMembership::take(uint32_t worker, const HaltedReport& r) {
  if (r.generation != generation) return;
  Member& m = members.at(worker);
  m.halted = true;
  m.finished = r.finished;
  if (!broken && !r.why.empty()) {
    note_failed_rendezvous((host_of(m) == 0 ? "this machine" : name_of_host(m)) +
                           " reports: " + r.why);
  }
  end_group();
}

// If no worker was lost, the cause is the connection between hosts or devices.
void WorkerMembership::note_failed_rendezvous(const std::string& why) {
  const std::string text = "the workers did not form a group: " + why;
  if (++failed_rendezvous == kRendezvousAttempts) {
    throw Error("[workers] " + text,
                "the workers' hosts and GPUs must reach each other on all ports");
  }
  if (failed_rendezvous == 1 && setup.notice) setup.notice(text + "; a new attempt follows");
}

void WorkerMembership::end_group() {
  if (!broken && group) group->end();
  broken = true;
}

// A worker whose result differs from the others' is replaced, and the iteration is computed again.
void WorkerMembership::take(uint32_t, const DisagreementReport& r) {
  if (r.generation != generation || r.generation == disagreed) return;
  disagreed = r.generation;  // all members report the same
  if (r.faulty.empty() || ++disagreements[{r.iteration, r.shard}] == kDisagreements) {
    throw Error(r.message, r.hint);
  }
  for (const int32_t rank : r.faulty) {
    workers.kill(ranks.at(static_cast<size_t>(rank)),
                 "computed a different result (" + r.message + ")");
  }
}

void WorkerMembership::take(uint32_t worker, const PublishedReport& r) {
  if (worker == publisher && r.state == 1 - published) publishing = r.finished;
}

void WorkerMembership::take(uint32_t worker, const ValidatedReport& r) {
  if (r.generation == generation && validating) validating->erase(worker);
}

void WorkerMembership::take(uint32_t worker, const BrokenReport& r) {
  if (r.generation == generation) workers.kill(worker, "cannot continue (" + r.why + ")");
}

void WorkerMembership::take(uint32_t, const NoticeReport& r) {
  if (noticed.insert(r.text).second && setup.notice) setup.notice(r.text);
}

bool WorkerMembership::joiners() const {
  return std::any_of(members.begin(), members.end(),
                     [](const auto& entry) { return entry.second.phase == Member::Phase::ready; });
}

}  // namespace lockstep
