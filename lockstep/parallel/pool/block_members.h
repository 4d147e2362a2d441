// How the members of a block (spmd.h) reach each other: through shared memory on one machine, and
// over several hosts through the client and through a group of the hosts.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/pool/pool_core.h"

namespace lockstep::detail {

// The members of a block on one host. Ranks are in the order of the hosts.
struct BlockHost {
  int host = 0;  // of the pool
  int members = 0;
  SharedRange group;  // of these members

  template <class Archive>
  void serialize(Archive& archive) {
    archive(host, members, group);
  }
};

// The content of a SpmdTicket.
struct BlockTicket {
  int size = 1;
  double limit = 600;
  std::vector<BlockHost> hosts;  // in order
  SharedRange rings;             // on one machine
  // Over several hosts: queues to and from the client, and the secret of the group of the hosts.
  uint64_t to_client = 0, from_client = 0;
  std::string secret;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(size, limit, hosts, rings, to_client, from_client, secret);
  }
};

struct BlockMessage {
  int tag = 0;
  Bytes content;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(tag, content);
  }
};

// Received messages of each sender, by tag.
using BlockMessages = std::vector<std::map<int, std::deque<Bytes>>>;

// A member's side. One thread.
class BlockMember {
 public:
  virtual ~BlockMember() = default;
  // Waits until all members have begun, without a limit, since some may be busy for long. Throws
  // WorkerLost if the block is ended before.
  virtual void come_together() = 0;
  // After come_together().
  virtual Group& group() = 0;
  // Hands a message over; it has left once sent() is true.
  virtual void send(int to, const BlockMessage& message) = 0;
  virtual bool sent(int to) = 0;
  virtual void collect(BlockMessages& messages) = 0;
  // Waits until something may have changed since the last collect() began.
  virtual void wait(double seconds) = 0;
  virtual bool ended() const = 0;
};

// For a task of the block's pool, which is the member `index`.
std::unique_ptr<BlockMember> make_block_member(const BlockTicket& ticket, int index);

// The client's side. Thread-safe.
class BlockClient {
 public:
  virtual ~BlockClient() = default;
  virtual const BlockTicket& ticket() const = 0;
  // Ends the block for all members.
  virtual void end() = 0;
};

std::unique_ptr<BlockClient> make_block_client(const std::shared_ptr<PoolCore>& pool, int size,
                                               double limit);

// What the two implementations share.
std::vector<std::string> block_member_names(int first, int members);

// Over several hosts.
std::unique_ptr<BlockMember> make_hosts_member(const BlockTicket& ticket, int index);
std::unique_ptr<BlockClient> make_hosts_client(const std::shared_ptr<PoolCore>& pool, int size,
                                               double limit);

}  // namespace lockstep::detail
