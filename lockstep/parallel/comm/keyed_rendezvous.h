// The members' side of a rendezvous through the client: entries have the pair of their members as
// key, so they may travel one by one or together, in any order.
#pragma once

#include <map>
#include <span>

#include "lockstep/base/bytes.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/comm/host_group.h"

namespace lockstep {

struct RendezvousEntry {
  int from = 0, to = 0;  // ranks
  Bytes value;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(from, to, value);
  }
};

// Of one member. The child sends entries and passes on those that come. One thread at a time.
class KeyedRendezvous : public Rendezvous {
 public:
  explicit KeyedRendezvous(int rank) : rank_(rank) {}

  // Throws what send() and wait() throw.
  std::map<int, Bytes> exchange(const std::map<int, Bytes>& own, const TimeLimit& limit) final;
  // Keeps an entry for this member, which may come before exchange().
  void take(RendezvousEntry entry);

 private:
  // Sends what this member gives.
  virtual void send(std::span<const RendezvousEntry> entries) = 0;
  // Waits for entries, at most `seconds`, and calls take() for each. Throws if the group has ended.
  virtual void wait(double seconds) = 0;

  const int rank_;
  std::map<int, Bytes> came_;  // by sender
};

}  // namespace lockstep
