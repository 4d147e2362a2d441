// Blocks over several hosts. Collectives use the hosts' own memory and a group of the hosts.
// Everything else goes through the client: messages, the addresses of the hosts' sockets, the
// beginning and the end.
#include <algorithm>
#include <deque>
#include <exception>
#include <utility>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random_hex.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/comm/composite_group.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/keyed_rendezvous.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/block_members.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep::detail {
namespace {

// Seconds for the first members of all hosts to connect.
constexpr double kConnectLimit = 30;
// Seconds for the client to learn why a group has ended.
constexpr double kEndLimit = 3;
// Seconds between looks at messages that a worker has no room for.
constexpr double kRoomPause = 0.002;

// From a member to the client.
struct Arrived {
  template <class Archive>
  void serialize(Archive&) {}
};
struct Sent {
  int to = 0;
  BlockMessage message;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(to, message);
  }
};
struct FromMember {
  int from = 0;
  std::variant<Arrived, Sent, RendezvousEntry> what;  // ranks of hosts in the entry

  template <class Archive>
  void serialize(Archive& archive) {
    archive(from, what);
  }
};

// From the client to a member.
struct Begin {
  std::string address;  // of the member's host

  template <class Archive>
  void serialize(Archive& archive) {
    archive(address);
  }
};
struct Ended {
  template <class Archive>
  void serialize(Archive&) {}
};
struct Delivered {
  int from = 0;
  BlockMessage message;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(from, message);
  }
};
using ToMember = std::variant<Begin, Ended, Delivered, RendezvousEntry>;

struct BlockRank {
  size_t part = 0;  // of BlockTicket::hosts
  int first = 0;    // rank of the first member there
};

BlockRank rank_of(const BlockTicket& ticket, int index) {
  BlockRank rank;
  while (rank.first + ticket.hosts[rank.part].members <= index) {
    rank.first += ticket.hosts[rank.part++].members;
  }
  return rank;
}

// The memory's layout does not depend on `spin`.
LocalGroupOptions hosts_group_options(int first, int members, bool spin) {
  return {.size = members,
          .window_bytes = 0,
          .spin = spin,
          .names = block_member_names(first, members)};
}

// The group of a block that an error of this member has ended, until the next block.
std::unique_ptr<Group> kept;

class HostsMember final : public BlockMember {
 public:
  HostsMember(const BlockTicket& ticket, int index)
      : ticket_(ticket),
        index_(index),
        context_(*TaskContext::current()),
        at_(rank_of(ticket, index)),
        own_(ticket.hosts[at_.part]),
        memory_(context_.memory().map(own_.group)),
        meeting_(std::make_shared<Meeting>(*this, static_cast<int>(at_.part))) {}

  // The client must learn the first error of a block first. Hosts notice within their group that a
  // member is lost, perhaps before the client does: then this waits for the client. And a member
  // with an error of its own keeps the connections, so that no other member notices its end.
  ~HostsMember() override {
    if (std::uncaught_exceptions() <= errors_before_ || !group_) return;
    if (!group_->ended()) {
      kept = std::move(group_);
      return;
    }
    try {
      for (const TimeLimit limit(kEndLimit);
           !ended_ && !context_.cancelled() && !limit.reached();) {
        take(0.05);
      }
    } catch (const std::exception&) {  // the error in flight is the one to report
    }
  }

  void come_together() override {
    kept.reset();
    tell(Arrived{});
    while (!begun_) {
      if (ended_) throw WorkerLost("[spmd] the block was ended before all workers had joined");
      check_cancelled();
      take(0.1);
    }
    make_group();
  }

  Group& group() override { return *group_; }

  void send(int to, const BlockMessage& message) override { tell(Sent{to, message}); }
  bool sent(int) override { return true; }

  void collect(BlockMessages& messages) override {
    take(0);
    for (Delivered& came : std::exchange(came_, {})) {
      messages.at(static_cast<size_t>(came.from))[came.message.tag].push_back(
          std::move(came.message.content));
    }
  }

  void wait(double seconds) override {
    if (came_.empty() && !ended_) take(seconds);
  }

  bool ended() const override { return ended_ || LocalGroup::aborted(memory_); }

 private:
  // Used only while the group is made.
  class Meeting final : public KeyedRendezvous {
   public:
    Meeting(HostsMember& member, int host) : KeyedRendezvous(host), member_(member) {}

   private:
    void send(std::span<const RendezvousEntry> entries) override {
      for (const RendezvousEntry& entry : entries) member_.tell(entry);
    }
    void wait(double seconds) override {
      if (member_.ended() || member_.context_.cancelled()) {
        throw WorkerLost("[spmd] the block was ended before all hosts had connected");
      }
      member_.take(seconds);
    }

    HostsMember& member_;
  };

  void make_group() {
    const bool spin = own_.members <= available_cores();
    auto local = std::make_unique<LocalGroup>(memory_, index_ - at_.first,
                                              hosts_group_options(at_.first, own_.members, spin));
    if (ticket_.hosts.size() == 1) {
      group_ = std::move(local);
      return;
    }
    CompositeGroupOptions options;
    for (const BlockHost& host : ticket_.hosts) options.members.push_back(host.members);
    options.host = static_cast<int>(at_.part);
    std::unique_ptr<Group> hosts;
    if (index_ == at_.first) {
      HostGroupOptions all{.rank = options.host,
                           .size = static_cast<int>(ticket_.hosts.size()),
                           .address = address_,
                           .rendezvous = meeting_,
                           .generation = static_cast<int64_t>(ticket_.to_client),
                           .secret = ticket_.secret};
      int first = 0;
      for (const BlockHost& host : ticket_.hosts) {
        all.names.push_back("worker " + std::to_string(first));
        first += host.members;
      }
      hosts = std::make_unique<HostGroup>(all, TimeLimit(kConnectLimit));
      options.abroad = &LocalGroup::note(memory_);
      options.ended = [memory = memory_] { return LocalGroup::aborted(memory); };
    }
    group_ = std::make_unique<CompositeGroup>(std::move(local), std::move(hosts), options);
  }

  template <class What>
  void tell(What what) {
    context_.send(ticket_.to_client, encode(FromMember{index_, std::move(what)}));
  }

  // Takes what has come; waits for it up to `seconds`.
  void take(double seconds) {
    for (auto message = context_.receive(ticket_.from_client, TimeLimit(seconds)); message;
         message = context_.receive(ticket_.from_client, TimeLimit(0))) {
      ToMember what = decode<ToMember>(*message);
      if (auto* const begin = std::get_if<Begin>(&what)) {
        begun_ = true;
        address_ = begin->address;
      } else if (auto* const delivered = std::get_if<Delivered>(&what)) {
        came_.push_back(std::move(*delivered));
      } else if (auto* const entry = std::get_if<RendezvousEntry>(&what)) {
        meeting_->take(std::move(*entry));
      } else {
        ended_ = true;
      }
    }
  }

  const BlockTicket ticket_;
  const int index_;
  TaskContext& context_;
  const BlockRank at_;
  const BlockHost own_;
  const SharedRegion memory_;
  std::unique_ptr<Group> group_;
  const int errors_before_ = std::uncaught_exceptions();
  bool begun_ = false, ended_ = false;
  std::string address_;
  std::vector<Delivered> came_;
  const std::shared_ptr<Meeting> meeting_;
};

// What members have sent, until the forwarder's thread takes it. The inbox must not call the pool.
class BlockInbox final : public Inbox {
 public:
  bool take(Bytes& message, bool) override {
    const MutexLock lock(mutex_);
    messages_.push_back(std::move(message));
    came_.notify_all();
    return true;
  }

  // False after close(). Returns at once if the block has ended, unless that is known.
  bool next(std::deque<Bytes>& messages, double seconds, bool known_to_end) {
    const MutexLock lock(mutex_);
    for (const TimeLimit limit(seconds);
         messages_.empty() && !closed_ && ended_ == known_to_end && !limit.reached();) {
      came_.wait_until(mutex_, limit);
    }
    messages = std::exchange(messages_, {});
    return !closed_;
  }

  // The block has ended. Members must still be told so.
  void end() {
    const MutexLock lock(mutex_);
    ended_ = true;
    came_.notify_all();
  }
  bool ended() {
    const MutexLock lock(mutex_);
    return ended_;
  }

  void close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    came_.notify_all();
  }

 private:
  Mutex mutex_;
  ConditionVariable came_;
  std::deque<Bytes> messages_ LOCKSTEP_GUARDED_BY(mutex_);
  bool ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

// The thread that forwards messages between the members of a block.
class BlockForwarder {
 public:
  BlockForwarder(std::shared_ptr<PoolCore> pool, BlockTicket ticket,
                 std::shared_ptr<BlockInbox> inbox)
      : pool_(std::move(pool)),
        ticket_(std::move(ticket)),
        inbox_(std::move(inbox)),
        waiting_(static_cast<size_t>(ticket_.size)) {}

  void run() {
    std::deque<Bytes> messages;
    bool waits = false, told = false;
    while (inbox_->next(messages, waits ? kRoomPause : 1, told)) {
      for (const Bytes& message : messages) {
        try {
          take(decode<FromMember>(message));
        } catch (const DataError&) {
          // A damaged worker's: it will be found where the memory shared with it is checked.
        }
      }
      if (inbox_->ended() && !std::exchange(told, true)) {
        for (int i = 0; i < ticket_.size; ++i) deliver(i, Ended{});
      }
      waits = false;
      for (int i = 0; i < ticket_.size; ++i) waits = !hand_over(i) || waits;
    }
  }

 private:
  void take(FromMember message) {
    if (auto* const sent = std::get_if<Sent>(&message.what)) {
      if (sent->to < 0 || sent->to >= ticket_.size) return;
      deliver(sent->to, Delivered{message.from, std::move(sent->message)});
    } else if (auto* const entry = std::get_if<RendezvousEntry>(&message.what)) {
      if (entry->to < 0 || static_cast<size_t>(entry->to) >= ticket_.hosts.size()) return;
      int first = 0;  // member of that host
      for (int host = 0; host < entry->to; ++host) {
        first += ticket_.hosts[static_cast<size_t>(host)].members;
      }
      deliver(first, std::move(*entry));
    } else if (++came_ == ticket_.size) {
      for (int i = 0; i < ticket_.size; ++i) {
        const int host = ticket_.hosts[rank_of(ticket_, i).part].host;
        deliver(i, Begin{pool_->hosts()->status(host).address});
      }
    }
  }

  void deliver(int index, ToMember what) {
    waiting_[static_cast<size_t>(index)].push_back(encode(what));
  }

  // False if messages are left for which the worker has no room.
  bool hand_over(int index) {
    auto& own = waiting_[static_cast<size_t>(index)];
    for (; !own.empty(); own.pop_front()) {
      if (pool_->send_to(index, ticket_.from_client, own.front(), TimeLimit(0))) continue;
      if (!inbox_->ended()) return false;
      own.clear();  // perhaps it is lost
    }
    return true;
  }

  const std::shared_ptr<PoolCore> pool_;
  const BlockTicket ticket_;
  const std::shared_ptr<BlockInbox> inbox_;
  int came_ = 0;
  std::vector<std::deque<Bytes>> waiting_;  // messages to each member
};

class HostsClient final : public BlockClient {
 public:
  HostsClient(std::shared_ptr<PoolCore> pool, int size, double limit)
      : pool_(std::move(pool)), inbox_(std::make_shared<BlockInbox>()) {
    ticket_.size = size;
    ticket_.limit = limit;
    ticket_.secret = random_hex(8);
    ticket_.to_client = pool_->add_inbox(inbox_);
    ticket_.from_client = pool_->next_number();
    for (int i = 0; i < size; ++i) {
      const int host = pool_->hosts()->host_of(i);
      if (ticket_.hosts.empty() || ticket_.hosts.back().host != host) {
        ticket_.hosts.push_back({host, 0, {}});
      }
      ++ticket_.hosts.back().members;
    }
    int first = 0;
    for (BlockHost& part : ticket_.hosts) {
      part.group = pool_->memory().reserve(
          LocalGroup::bytes(hosts_group_options(first, part.members, false)));
      first += part.members;
    }
    // This object may be destroyed under the pool's mutex, for which the thread may be waiting.
    auto forwarder = std::make_shared<BlockForwarder>(pool_, ticket_, inbox_);
    quiet_thread([forwarder] { forwarder->run(); }).detach();
  }

  ~HostsClient() override {
    pool_->remove_inbox(ticket_.to_client);
    inbox_->close();
    for (const BlockHost& part : ticket_.hosts) pool_->memory().free(part.group);
  }

  const BlockTicket& ticket() const override { return ticket_; }

  // May be called under the pool's mutex, so the forwarder tells those who wait for messages.
  void end() override {
    for (const BlockHost& part : ticket_.hosts) {
      if (part.host == 0) {
        LocalGroup::abort(pool_->memory().map(part.group));
      } else {
        pool_->hosts()->end_group(part.host, part.group);
      }
    }
    inbox_->end();
  }

 private:
  const std::shared_ptr<PoolCore> pool_;
  const std::shared_ptr<BlockInbox> inbox_;
  BlockTicket ticket_;
};

}  // namespace

std::unique_ptr<BlockMember> make_hosts_member(const BlockTicket& ticket, int index) {
  return std::make_unique<HostsMember>(ticket, index);
}

std::unique_ptr<BlockClient> make_hosts_client(const std::shared_ptr<PoolCore>& pool, int size,
                                               double limit) {
  return std::make_unique<HostsClient>(pool, size, limit);
}

}  // namespace lockstep::detail
