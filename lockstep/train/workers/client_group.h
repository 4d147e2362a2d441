// The client's view of a group of workers, of which the client is not a member. The client can find
// members that are missing and end the group.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

struct ClientGroupOptions {
  std::vector<uint32_t> workers = {};  // numbers of the members, by rank
  std::vector<int> hosts = {};         // of the members; members of one host are consecutive
  size_t window_bytes = 0;             // of members that share a host
  int64_t threads = 1;                 // of each
};

// One thread at a time.
class ClientGroup {
 public:
  // Reserves the pool's memory for a group that has not formed yet.
  ClientGroup(detail::PoolCore& pool, const ClientGroupOptions& options);

  // Fills in the group's description for the member with this rank.
  void describe(FormOrder& order, size_t rank) const;
  // Fills in the members of each host, and the secret.
  void describe(GroupOfWorkers& group) const;
  // The ranks of the first members of the hosts.
  std::vector<size_t> first_ranks() const;
  // Ends the group for all members that wait in it.
  void end();
  // The members that others wait for; `where` names what they wait at ("worker 2 has not arrived
  // at barrier number 17"). Takes up to a few seconds.
  std::vector<size_t> missing(std::string& where);

 private:
  struct Part {
    int host = 0;
    uint64_t presence = 0;  // of the host's process
    std::string address = {};
    size_t first = 0;
    LocalGroupOptions options;
    ReservedRange range;
    SharedRegion memory;  // on another host: a copy of the last answer
  };

  detail::PoolCore& pool_;
  const ClientGroupOptions options_;
  std::string secret_;
  std::vector<Part> parts_;
  bool ended_ = false;
};

}  // namespace lockstep
