#include "lockstep/train/workers/membership/present_group.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void PresentGroup::begin(WorkerMembership& membership, std::vector<uint32_t> ranks,
                         const ClientGroupOptions& options) {
  ++generation_;
  ranks_ = std::move(ranks);
  group_.emplace(membership.pool(), options);
  first_members_.clear();
  hosts_by_members_.clear();
  for (const size_t rank : group_->first_ranks()) {
    hosts_by_members_[ranks_[rank]] = first_members_.size();
    first_members_.push_back(ranks_[rank]);
  }
  meeting_ = Meeting(first_members_.size());
  far_ = first_members_.size() > 1 || membership.on_devices();
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

std::vector<std::pair<uint32_t, RendezvousEntries>> PresentGroup::meet(
    uint32_t worker, const RendezvousEntries& entries) {
  std::vector<std::pair<uint32_t, RendezvousEntries>> complete;
  const auto found = hosts_by_members_.find(worker);
  if (found == hosts_by_members_.end()) return complete;
  for (const size_t host : meeting_.add(found->second, entries)) {
    complete.emplace_back(first_members_[host], meeting_.take(host));
  }
  return complete;
}

std::vector<uint32_t> PresentGroup::missing(std::string& where) {
  std::vector<uint32_t> workers;
  for (const size_t rank : group_->missing(where)) workers.push_back(ranks_[rank]);
  return workers;
}

}  // namespace lockstep
