#include "lockstep/train/workers/membership/training_hosts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// Seconds without data, for a host's part of a validation and for the status of its workers.
constexpr double kCollectPatience = 20, kStatusPatience = 2;

}  // namespace

void TrainingHosts::share(const TrainingImages& images) {
  SharedMemory& memory = membership_.pool().memory();
  const SharedImages& ranges = begin_.images = share_images(images, memory);
  for (const SharedRange& range :
       {ranges.training, ranges.targets, ranges.validation, ranges.validation_targets}) {
    if (range.bytes > 0) images_.emplace_back(memory, range);
  }
}

void TrainingHosts::begin(const SharedRange (&states)[2], const SharedRange& evaluation,
                          bool scores) {
  for (int i = 0; i < 2; ++i) begin_.states[i] = states[i];
  begin_.evaluation = evaluation;
  begin_.scores = scores;
  may_prepare_ = true;
}

// Whether the member's host has the data that is the same for all workers. Requests it if not.
bool TrainingHosts::prepared(const WorkerMember& m) {
  const int number = membership_.host_of(m);
  if (number == 0) return true;
  if (!may_prepare_) return false;
  const uint64_t presence = there().presence(number);
  if (presence == 0) return false;
  Host& host = hosts_[number];
  if (host.presence != presence) {
    host.presence = presence;
    host.missing = false;
    host.images = 0;
    const SharedImages& images = begin_.images;
    for (const SharedRange& range :
         {images.training, images.targets, images.validation, images.validation_targets}) {
      if (range.bytes > 0) host.images = there().push(number, range);
    }
    if (begin_.evaluation.bytes > 0 && !host.evaluation_memory) {
      SharedMemory& memory = membership_.pool().memory();
      host.evaluation = ReservedRange(memory, begin_.evaluation.bytes);
      host.evaluation_memory = memory.map(*host.evaluation);
      there().belongs_to(number, *host.evaluation);
    }
  }
  return host.images == 0 || there().pushed(number, host.images);
}

void TrainingHosts::settle() {
  for (auto& [number, m] : membership_.members()) {
    if (m.phase != WorkerMember::Phase::building || !m.built || !prepared(m)) continue;
    m.phase = WorkerMember::Phase::ready;
  }
}

BeginOrder TrainingHosts::order_for(const WorkerMember& m) {
  BeginOrder own = begin_;
  own.status = *m.status_range;
  const int host = membership_.host_of(m);
  if (host == 0) return own;
  if (begin_.evaluation.bytes > 0) own.evaluation = *hosts_.at(host).evaluation;
  there().watch(host, used_status(m));
  return own;
}

// The used part of the worker's status.
SharedRange TrainingHosts::used_status(const WorkerMember& m) const {
  const int64_t most = std::max(setup_.options.threads, setup_.options.streams);
  const auto threads = static_cast<size_t>(std::min<int64_t>(most, TrainingWorkerStatus::kThreads));
  return {(*m.status_range).offset,
          offsetof(TrainingWorkerStatus, shards) + threads * sizeof(int64_t)};
}

bool TrainingHosts::same_agent(int host) {
  return host == 0 || there().presence(host) == hosts_[host].presence;
}

bool TrainingHosts::note_missing(int host) { return !std::exchange(hosts_[host].missing, true); }

bool TrainingHosts::pull(int host, const SharedRange& range, double patience) {
  return there().pull(host, hosts_.at(host).presence, range, patience);
}

void TrainingHosts::collect_statuses() {
  std::vector<detail::HostMemory::Pull> pulls;
  for (const auto& [number, m] : membership_.members()) {
    if (m.pid == 0 || membership_.host_of(m) == 0) continue;
    const auto host = hosts_.find(membership_.host_of(m));
    if (host == hosts_.end()) continue;
    pulls.push_back({host->first, host->second.presence, used_status(m)});
  }
  if (!pulls.empty()) there().pull_each(pulls, kStatusPatience);
}

void TrainingHosts::push_evaluation(int host) {
  there().push(host, {(*hosts_.at(host).evaluation).offset, Evaluator::kAreaHead});
}

bool TrainingHosts::pull_evaluation(int host) {
  return pull(host, *hosts_.at(host).evaluation, kCollectPatience);
}

}  // namespace lockstep
