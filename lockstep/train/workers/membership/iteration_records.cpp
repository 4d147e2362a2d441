#include "lockstep/train/workers/membership/iteration_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

void IterationRecords::continue_after(int64_t base) {
  granted_ = base;
  received_ = std::min(received_, base);
  arrived_.clear();
}

IndexRange IterationRecords::add(uint32_t worker, const std::vector<IterationOutcome>& records) {
  for (const IterationOutcome& record : records) {
    const auto [known, is_new] = digests_.emplace(record.iteration, record.digest);
    if (known->second != record.digest) {
      throw Error(
          fmt::format("[workers] after iteration {} worker {} has the digest {}, others {}",
                      record.iteration, worker, record.digest.to_string(),
                      known->second.to_string()),
          "the processors compute different results: a hardware fault, or a fault in a custom "
          "layer");
    }
    if (record.iteration <= received_) continue;
    arrived_.emplace(record.iteration, record);
  }
  const int64_t before = received_;
  // Messages of one worker may arrive before earlier messages of another worker.
  for (auto next = arrived_.begin(); next != arrived_.end() && next->first <= received_ + 1;
       next = arrived_.erase(next)) {
    if (next->first <= received_) continue;
    received_ = next->first;
    seconds_ = next->second.seconds;
    if (received_ > taken_) records_.emplace(received_, next->second);
  }
  while (digests_.size() > 4096) digests_.erase(digests_.begin());
  return {before + 1, received_ - before};
}

IterationOutcome IterationRecords::take(int64_t iteration) {
  const IterationOutcome outcome = records_.at(iteration);
  records_.erase(iteration);
  taken_ = iteration;
  return outcome;
}

void IterationRecords::forget_before(int64_t iteration) {
  digests_.erase(digests_.begin(), digests_.lower_bound(iteration));
}

}  // namespace lockstep
