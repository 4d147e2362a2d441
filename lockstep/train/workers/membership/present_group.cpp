#include "lockstep/train/workers/membership/present_group.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void PresentGroup::begin(WorkerMembership& membership, std::vector<uint32_t> ranks,
                         const ClientGroupOptions& options) {
  ++generation_;
  ranks_ = std::move(ranks);
  group_.emplace(membership.pool(), options);
  far_ = group_->first_ranks().size() > 1 || membership.on_devices();
}

void PresentGroup::formed(int64_t base) {
  broken_ = false;
  base_ = base;
}

void PresentGroup::end() {
  if (group_) group_->end();
  broken_ = true;
}

bool PresentGroup::has(uint32_t worker) const {
  return std::find(ranks_.begin(), ranks_.end(), worker) != ranks_.end();
}

std::vector<uint32_t> PresentGroup::first_members() const {
  std::vector<uint32_t> workers;
  if (!group_) return workers;
  for (const size_t rank : group_->first_ranks()) workers.push_back(ranks_[rank]);
  return workers;
}

std::vector<uint32_t> PresentGroup::missing(std::string& where) {
  std::vector<uint32_t> workers;
  for (const size_t rank : group_->missing(where)) workers.push_back(ranks_[rank]);
  return workers;
}

}  // namespace lockstep
