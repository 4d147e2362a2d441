// The addresses that the first members of hosts give to each other through the client.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// Each host gives one entry for each host that it will be connected to, and expects one from each
// of them. A host gets its entries in one message when all have come, so that the client sends as
// many messages as there are hosts. One thread at a time.
class Meeting {
 public:
  explicit Meeting(size_t hosts = 0) : hosts_(hosts) {}

  // Takes a host's entries. Returns the hosts whose entries are now complete. Throws DataError for
  // a host that does not exist.
  std::vector<size_t> add(size_t host, const RendezvousEntries& entries) {
    std::vector<size_t> complete;
    if (hosts_.at(host).sent) return complete;
    hosts_[host].sent = true;
    hosts_[host].expected = entries.size();
    for (const auto& [to, address] : entries) {
      if (to < 0 || static_cast<size_t>(to) >= hosts_.size()) {
        throw DataError("[workers] host " + std::to_string(host) + " sent an address for host " +
                        std::to_string(to) + ", but there are " + std::to_string(hosts_.size()) +
                        " hosts");
      }
      Host& receiver = hosts_[static_cast<size_t>(to)];
      receiver.entries.emplace_back(static_cast<int32_t>(host), address);
      if (static_cast<size_t>(to) != host && receiver.complete()) {
        complete.push_back(static_cast<size_t>(to));
      }
    }
    if (hosts_[host].complete()) complete.push_back(host);
    return complete;
  }

  // A complete host's entries, by the hosts that gave them.
  RendezvousEntries take(size_t host) { return std::exchange(hosts_.at(host).entries, {}); }

 private:
  struct Host {
    bool sent = false;
    size_t expected = 0;
    RendezvousEntries entries;
    bool complete() const { return sent && entries.size() == expected; }
  };
  std::vector<Host> hosts_;
};

}  // namespace lockstep
