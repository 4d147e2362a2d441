// A group of workers as the client sees it, who is no member: what it can tell of them, and how it
// ends them.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

struct ClientGroupOptions {
  std::vector<std::string> names = {};  // of the members, by rank
  std::vector<int> hosts = {};          // on which they are, each host's one behind the other
  size_t window_bytes = 0;              // of members that share one host
  int64_t threads = 1;                  // of each
};

// One thread at a time.
class ClientGroup {
 public:
  // Takes memory of the pool for a group that has not met before.
  ClientGroup(detail::PoolCore& pool, const ClientGroupOptions& options);

  // Fills in what a member has to know of the group, and its rank.
  void describe(FormOrder& order, size_t rank) const;
  // Those of the hosts' first members.
  std::vector<size_t> first_ranks() const;
  // For everybody who waits in it.
  void end();
  // The members that others wait for, and where ("worker 2 has not come to barrier number 17").
  // Hosts are asked within a few seconds.
  std::vector<size_t> missing(std::string& where);

 private:
  struct Part {
    int host = 0;
    uint64_t presence = 0;  // of its process
    size_t first = 0;
    LocalGroupOptions options;
    ReservedPlace place;
    SharedRegion memory;  // of another host: what was asked for last
  };

  detail::PoolCore& pool_;
  const ClientGroupOptions options_;
  std::string secret_;
  std::vector<Part> parts_;
  bool ended_ = false;
};

}  // namespace lockstep
