#include "lockstep/train/workers/membership/worker_validation.h"

#include <cstring>
#include <utility>

namespace lockstep {

void WorkerValidation::prepare(std::unique_ptr<Evaluator> evaluator) {
  evaluator_ = std::move(evaluator);
  if (!evaluator_) return;
  SharedMemory& memory = membership_.pool().memory();
  reserved_ = ReservedRange(memory, evaluator_->area_bytes(scores()));
  range_ = *reserved_;
  area_ = memory.map(range_);
}

// By order of ranks. Each host gets a part in proportion to its members.
void WorkerValidation::begin(const std::vector<uint32_t>& workers) {
  parts_.clear();
  not_finite_.reset();
  std::map<int, int64_t> count;
  for (const uint32_t number : workers) ++count[membership_.host_of(membership_.at(number))];
  const auto size = static_cast<int64_t>(workers.size()), batches = evaluator_->batches();
  std::memset(area_.get(), 0, range_.bytes);
  Evaluator::partition(area_.get(), 0, 0);
  int64_t before = 0;
  for (const auto& [host, members] : count) {
    const int64_t first = batches * before / size;
    before += members;
    const int64_t end = batches * before / size;
    parts_[host] = {first, end - first};
    if (host == 0) {
      Evaluator::partition(area_.get(), first, end);
      continue;
    }
    std::byte* const area = hosts_.evaluation(host);
    std::memset(area, 0, range_.bytes);
    Evaluator::partition(area, first, end);
    hosts_.push_evaluation(host);
  }
  awaited_.emplace(workers.begin(), workers.end());
}

int64_t WorkerValidation::batches_begun() const {
  int64_t begun = 0;
  for (const auto& [number, m] : membership_.members()) begun += m.status().evaluated.load();
  return begun;
}

std::optional<Evaluation> WorkerValidation::collect() {
  for (const auto& [host, batches] : parts_) {
    if (host == 0 || batches.count == 0) continue;
    if (!hosts_.pull_evaluation(host)) return std::nullopt;
    evaluator_->merge(area_.get(), hosts_.evaluation(host), batches.first, batches.end(), scores());
  }
  return evaluator_->result(area_.get());
}

void WorkerValidation::call_off() {
  for (const auto& [host, batches] : parts_) {
    if (host == 0) {
      Evaluator::call_off(area_.get());
      continue;
    }
    Evaluator::call_off(hosts_.evaluation(host));
    hosts_.push_evaluation(host);
  }
}

}  // namespace lockstep
