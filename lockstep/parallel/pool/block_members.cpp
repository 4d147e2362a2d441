// Blocks on one machine.
#include "lockstep/parallel/pool/block_members.h"

#include <atomic>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/messages/byte_ring.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep::detail {
namespace {

// Capacity of each ring: one for each ordered pair of workers.
constexpr size_t kRing = size_t{256} << 10;
struct alignas(cache_line) Head {
  std::atomic<uint32_t> ended;
  std::atomic<int32_t> arrived;
};
struct alignas(cache_line) Door {
  Bell bell;
};

size_t rings_bytes(int size) {
  const auto n = static_cast<size_t>(size);
  return sizeof(Head) + n * sizeof(Door) + n * n * ByteRing::bytes(kRing);
}
Head& head_of_rings(const SharedRegion& rings) {
  return *std::launder(reinterpret_cast<Head*>(rings.get()));
}
Bell& bell_of(const SharedRegion& rings, int index) {
  return std::launder(reinterpret_cast<Door*>(rings.get() + sizeof(Head)))[index].bell;
}
ByteRing ring_of(const SharedRegion& rings, int size, int from, int to) {
  const auto n = static_cast<size_t>(size);
  const size_t number = static_cast<size_t>(from) * n + static_cast<size_t>(to);
  return ByteRing(rings.get() + sizeof(Head) + n * sizeof(Door) + number * ByteRing::bytes(kRing),
                  kRing);
}

LocalGroupOptions block_group_options(int size) {
  return {.size = size,
          .window_bytes = 0,
          .spin = size <= available_cores(),
          .names = block_member_names(0, size)};
}

class LocalMember final : public BlockMember {
 public:
  LocalMember(const BlockTicket& ticket, int index)
      : size_(ticket.size),
        index_(index),
        rings_(TaskContext::current()->memory().map(ticket.rings)),
        group_(TaskContext::current()->memory().map(ticket.hosts.front().group), index,
               block_group_options(ticket.size)) {
    for (int i = 0; i < size_; ++i) {
      writers_.emplace_back(ring_of(rings_, size_, index, i));
      readers_.emplace_back(ring_of(rings_, size_, i, index));
    }
  }

  void come_together() override {
    head_of_rings(rings_).arrived.fetch_add(1);
    for (int i = 0; i < size_; ++i) bell_of(rings_, i).ring();
    for (;;) {
      seen_ = bell_of(rings_, index_).rings();
      if (head_of_rings(rings_).arrived.load() == size_) return;
      if (ended()) {
        throw WorkerLost("[spmd] the block was ended before all workers had joined");
      }
      check_cancelled();
      wait(0.1);
    }
  }

  Group& group() override { return group_; }

  void send(int to, const BlockMessage& message) override {
    writers_[static_cast<size_t>(to)].push(encode(message));
    bell_of(rings_, to).ring();
  }

  bool sent(int to) override {
    const bool done = writers_[static_cast<size_t>(to)].flush();
    bell_of(rings_, to).ring();
    return done;
  }

  void collect(BlockMessages& messages) override {
    seen_ = bell_of(rings_, index_).rings();
    for (int i = 0; i < size_; ++i) {
      MessageReader& reader = readers_[static_cast<size_t>(i)];
      while (const auto message = reader.next()) {
        auto read = decode<BlockMessage>(*message);
        messages[static_cast<size_t>(i)][read.tag].push_back(std::move(read.content));
      }
      if (reader.took()) bell_of(rings_, i).ring();
    }
  }

  void wait(double seconds) override { bell_of(rings_, index_).wait(seen_, TimeLimit(seconds)); }

  bool ended() const override { return head_of_rings(rings_).ended.load() != 0; }

 private:
  const int size_, index_;
  const SharedRegion rings_;
  LocalGroup group_;
  std::vector<MessageWriter> writers_;
  std::vector<MessageReader> readers_;
  uint32_t seen_ = 0;
};

class LocalClient final : public BlockClient {
 public:
  LocalClient(std::shared_ptr<PoolCore> pool, int size, double limit) : pool_(std::move(pool)) {
    SharedMemory& memory = pool_->memory();
    ticket_.size = size;
    ticket_.limit = limit;
    ticket_.hosts = {{0, size, memory.reserve(LocalGroup::bytes(block_group_options(size)))}};
    ticket_.rings = memory.reserve(rings_bytes(size));
    group_ = memory.map(ticket_.hosts.front().group);
    rings_ = memory.map(ticket_.rings);
  }
  ~LocalClient() override {
    pool_->memory().free(ticket_.hosts.front().group);
    pool_->memory().free(ticket_.rings);
  }

  const BlockTicket& ticket() const override { return ticket_; }

  void end() override {
    head_of_rings(rings_).ended = 1;
    LocalGroup::abort(group_);
    for (int i = 0; i < ticket_.size; ++i) bell_of(rings_, i).ring();
  }

 private:
  const std::shared_ptr<PoolCore> pool_;
  BlockTicket ticket_;
  SharedRegion group_, rings_;
};

}  // namespace

std::vector<std::string> block_member_names(int first, int members) {
  std::vector<std::string> names;
  for (int i = first; i < first + members; ++i) names.push_back("worker " + std::to_string(i));
  return names;
}

std::unique_ptr<BlockMember> make_block_member(const BlockTicket& ticket, int index) {
  if (ticket.hosts.size() > 1 || ticket.to_client != 0) return make_hosts_member(ticket, index);
  return std::make_unique<LocalMember>(ticket, index);
}

std::unique_ptr<BlockClient> make_block_client(const std::shared_ptr<PoolCore>& pool, int size,
                                               double limit) {
  if (pool->hosts() != nullptr) return make_hosts_client(pool, size, limit);
  return std::make_unique<LocalClient>(pool, size, limit);
}

}  // namespace lockstep::detail
