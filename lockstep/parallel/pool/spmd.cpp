#include "lockstep/parallel/pool/spmd.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/block_members.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep {

struct Spmd::State {
  explicit State(const detail::BlockTicket& ticket)
      : size(ticket.size),
        seconds(ticket.limit),
        index(task_worker()),
        member(detail::make_block_member(ticket, index)),
        messages(static_cast<size_t>(ticket.size)) {}

  const int size;
  const double seconds;
  const int index;
  const std::unique_ptr<detail::BlockMember> member;
  detail::BlockMessages messages;

  TimeLimit limit() const { return TimeLimit(seconds); }

  void check_index(int other) const {
    if (other >= 0 && other < size) return;
    throw InvalidArgument("[spmd] there is no worker " + std::to_string(other) + " among " +
                          std::to_string(size));
  }

  // Waits until the condition holds, which is tested after every change.
  template <class Holds>
  void wait(const char* what, int other, const Holds& holds) {
    for (const TimeLimit until = limit();;) {
      member->collect(messages);
      if (holds()) return;
      if (member->ended()) {
        throw WorkerLost(std::string("[spmd] the block was ended during ") + what);
      }
      check_cancelled();
      if (until.reached()) {
        throw Timeout(std::string("[spmd] ") + what + ": worker " + std::to_string(other) +
                      " did not respond in time");
      }
      member->wait(std::min(until.left(), 0.1));
    }
  }
};

Spmd::Spmd(const detail::SpmdTicket& ticket) {
  if (TaskContext::current() == nullptr)
    throw InvalidArgument("[spmd] this is not a task of a pool");
  state_ = std::make_unique<State>(decode<detail::BlockTicket>(ticket.content));
  state_->member->come_together();
}

Spmd::~Spmd() = default;

int Spmd::index() const { return state_->index; }
int Spmd::size() const { return state_->size; }

void Spmd::barrier() { state_->member->group().barrier(state_->limit()); }

std::vector<Bytes> Spmd::gather_bytes(const Bytes& mine) {
  return state_->member->group().gather_each(mine, state_->limit());
}

Group& Spmd::group() { return state_->member->group(); }

Bytes Spmd::broadcast_bytes(Bytes mine, int root) {
  State& s = *state_;
  s.check_index(root);
  const TimeLimit limit = s.limit();
  size_t bytes = mine.size();
  s.member->group().broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root, limit);
  mine.resize(bytes);
  s.member->group().broadcast(mine, root, limit);
  return mine;
}

void Spmd::send_bytes(int to, int tag, const Bytes& content) {
  State& s = *state_;
  s.check_index(to);
  s.member->send(to, {tag, content});
  // Collects arriving messages meanwhile, because their senders may wait for this worker.
  s.wait("send", to, [&] { return s.member->sent(to); });
}

Bytes Spmd::receive_bytes(int from, int tag) {
  State& s = *state_;
  s.check_index(from);
  auto& waiting = s.messages[static_cast<size_t>(from)][tag];
  s.wait("receive", from, [&] { return !waiting.empty(); });
  Bytes content = std::move(waiting.front());
  waiting.pop_front();
  return content;
}

bool Spmd::probe(int from, int tag) {
  state_->check_index(from);
  state_->member->collect(state_->messages);
  return !state_->messages[static_cast<size_t>(from)][tag].empty();
}

namespace detail {

struct SpmdMemory::State {
  State(std::shared_ptr<PoolCore> core, int size, double limit)
      : pool(std::move(core)), client(make_block_client(pool, size, limit)) {
    ticket.content = encode(client->ticket());
  }

  const std::shared_ptr<PoolCore> pool;
  const std::unique_ptr<BlockClient> client;
  SpmdTicket ticket;
  std::atomic<int> reason{-1};
};

SpmdMemory::SpmdMemory(Pool& pool, int size, double limit) {
  if (!(limit > 0)) throw InvalidArgument("[spmd] limit must be > 0 seconds");
  state_ = std::make_unique<State>(pool.core(), size, limit);
}

SpmdMemory::~SpmdMemory() = default;

const SpmdTicket& SpmdMemory::ticket() const { return state_->ticket; }

int SpmdMemory::reason() const { return state_->reason; }

void SpmdMemory::start_all(const std::function<void(int)>& start) {
  const MutexLock one_block(state_->pool->blocks);
  for (int i = 0; i < state_->client->ticket().size; ++i) {
    try {
      start(i);
    } catch (...) {
      // The pool has fewer workers by now: those that have begun must not wait for the others.
      end(i);
      throw;
    }
  }
}

void SpmdMemory::end(int index) {
  State& s = *state_;
  int none = -1;
  s.reason.compare_exchange_strong(none, index);
  s.client->end();
}

}  // namespace detail
}  // namespace lockstep
