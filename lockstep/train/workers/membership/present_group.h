// The group that the present workers form, or the last one if it is broken.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/workers/client_group.h"
#include "lockstep/train/workers/membership/meeting.h"
#include "lockstep/train/workers/membership/membership.h"

namespace lockstep {

// One thread at a time.
class PresentGroup {
 public:
  // Begins a group of these workers, in order of their ranks.
  void begin(WorkerMembership& membership, std::vector<uint32_t> ranks,
             const ClientGroupOptions& options);
  // The group has its orders and continues after iteration `base`.
  void formed(int64_t base);
  // Ends the group for the members that wait in it. They report HaltedReport.
  void end();

  // Increases with each group; 0: none has begun.
  int64_t generation() const { return generation_; }
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  bool has(uint32_t worker) const;
  bool broken() const { return broken_; }
  // Whether the members must first find each other, or each other's devices.
  bool far() const { return far_; }
  // Whether nothing was granted since it formed; `granted`: the last granted iteration.
  bool idle(int64_t granted) const { return group_ && granted == base_; }

  void describe(FormOrder& order, size_t rank) const { group_->describe(order, rank); }
  void describe(GroupOfWorkers& group) const { group_->describe(group); }
  // A host's first member gives addresses to those of other hosts. Returns the first members
  // whose entries are now complete, with these entries. Throws DataError for invalid ones.
  std::vector<std::pair<uint32_t, RendezvousEntries>> meet(uint32_t worker,
                                                           const RendezvousEntries& entries);
  // The members that others wait for; see ClientGroup::missing().
  std::vector<uint32_t> missing(std::string& where);

 private:
  int64_t generation_ = 0;
  std::vector<uint32_t> ranks_;
  std::vector<uint32_t> first_members_;          // of each host
  std::map<uint32_t, size_t> hosts_by_members_;  // by first member
  Meeting meeting_;
  std::optional<ClientGroup> group_;
  int64_t base_ = -1;  // the iteration before the group's first
  bool broken_ = false, far_ = false;
};

}  // namespace lockstep
