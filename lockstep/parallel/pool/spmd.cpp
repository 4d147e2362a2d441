#include "lockstep/parallel/pool/spmd.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/messages/byte_ring.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep {
namespace {

// Capacity of each ring: one for each ordered pair of workers.
constexpr size_t kRing = size_t{256} << 10;
struct alignas(cache_line) Head {
  std::atomic<uint32_t> ended;
  std::atomic<int32_t> came;
};
struct alignas(cache_line) Door {
  Bell bell;
};

size_t mail_bytes(int size) {
  const auto n = static_cast<size_t>(size);
  return sizeof(Head) + n * sizeof(Door) + n * n * ByteRing::bytes(kRing);
}
Head& head_of(const SharedRegion& mail) {
  return *std::launder(reinterpret_cast<Head*>(mail.get()));
}
Bell& bell_of(const SharedRegion& mail, int index) {
  return std::launder(reinterpret_cast<Door*>(mail.get() + sizeof(Head)))[index].bell;
}
ByteRing ring_of(const SharedRegion& mail, int size, int from, int to) {
  const auto n = static_cast<size_t>(size);
  const size_t number = static_cast<size_t>(from) * n + static_cast<size_t>(to);
  return ByteRing(mail.get() + sizeof(Head) + n * sizeof(Door) + number * ByteRing::bytes(kRing),
                  kRing);
}

LocalGroupOptions group_options(int size) {
  LocalGroupOptions options{.size = size, .window_bytes = 0, .spin = size <= available_cores()};
  for (int i = 0; i < size; ++i) options.names.push_back("worker " + std::to_string(i));
  return options;
}

// The content of a SpmdTicket.
struct Ticket {
  SharedPlace group, mail;
  int size = 1;
  double limit = 600;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(group, mail, size, limit);
  }
};

struct Letter {
  int tag = 0;
  Bytes content;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(tag, content);
  }
};

}  // namespace

struct Spmd::State {
  explicit State(const Ticket& t)
      : ticket(t),
        mail(TaskContext::current()->memory().map(t.mail)),
        index(task_worker()),
        group(TaskContext::current()->memory().map(t.group), index, group_options(t.size)),
        letters(static_cast<size_t>(t.size)) {
    for (int i = 0; i < t.size; ++i) {
      writers.emplace_back(ring_of(mail, t.size, index, i));
      readers.emplace_back(ring_of(mail, t.size, i, index));
    }
  }

  const Ticket ticket;
  const SharedRegion mail;
  const int index;
  LocalGroup group;
  std::vector<MessageWriter> writers;
  std::vector<MessageReader> readers;
  std::vector<std::map<int, std::deque<Bytes>>> letters;  // received ones by sender and tag

  TimeLimit limit() const { return TimeLimit(ticket.limit); }

  void check_index(int other) const {
    if (other >= 0 && other < ticket.size) return;
    throw InvalidArgument("[spmd] there is no worker " + std::to_string(other) + " among " +
                          std::to_string(ticket.size));
  }

  // Collects the messages that have arrived.
  void collect() {
    for (int i = 0; i < ticket.size; ++i) {
      MessageReader& reader = readers[static_cast<size_t>(i)];
      while (const auto message = reader.next()) {
        Letter letter = decode<Letter>(*message);
        letters[static_cast<size_t>(i)][letter.tag].push_back(std::move(letter.content));
      }
      if (reader.took()) bell_of(mail, i).ring();
    }
  }

  // Waits until all workers have begun, without a limit: some may be busy for long.
  void come_together() {
    head_of(mail).came.fetch_add(1);
    for (int i = 0; i < ticket.size; ++i) bell_of(mail, i).ring();
    for (;;) {
      const uint32_t seen = bell_of(mail, index).rings();
      if (head_of(mail).came.load() == ticket.size) return;
      if (head_of(mail).ended.load() != 0) {
        throw WorkerLost("[spmd] the block was ended before all workers had joined");
      }
      check_cancelled();
      bell_of(mail, index).wait(seen, TimeLimit(0.1));
    }
  }

  // Waits until the condition holds, which is tested after every change.
  template <class Holds>
  void wait(const char* what, int other, const Holds& holds) {
    for (const TimeLimit until = limit();;) {
      const uint32_t seen = bell_of(mail, index).rings();
      collect();
      if (holds()) return;
      if (head_of(mail).ended.load() != 0) {
        throw WorkerLost(std::string("[spmd] the block was ended during ") + what);
      }
      check_cancelled();
      if (until.reached()) {
        throw Timeout(std::string("[spmd] ") + what + ": worker " + std::to_string(other) +
                      " did not respond in time");
      }
      bell_of(mail, index).wait(seen, TimeLimit(std::min(until.left(), 0.1)));
    }
  }
};

Spmd::Spmd(const detail::SpmdTicket& ticket) {
  if (TaskContext::current() == nullptr)
    throw InvalidArgument("[spmd] this is not a task of a pool");
  state_ = std::make_unique<State>(decode<Ticket>(ticket.content));
  state_->come_together();
}

Spmd::~Spmd() = default;

int Spmd::index() const { return state_->index; }
int Spmd::size() const { return state_->ticket.size; }

void Spmd::barrier() { state_->group.barrier(state_->limit()); }

std::vector<Bytes> Spmd::gather_bytes(const Bytes& mine) {
  return state_->group.gather_each(mine, state_->limit());
}

Group& Spmd::group() { return state_->group; }

Bytes Spmd::broadcast_bytes(Bytes mine, int root) {
  State& s = *state_;
  s.check_index(root);
  const TimeLimit limit = s.limit();
  size_t bytes = mine.size();
  s.group.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root, limit);
  mine.resize(bytes);
  s.group.broadcast(mine, root, limit);
  return mine;
}

void Spmd::send_bytes(int to, int tag, const Bytes& content) {
  State& s = *state_;
  s.check_index(to);
  MessageWriter& writer = s.writers[static_cast<size_t>(to)];
  writer.push(encode(Letter{tag, content}));
  bell_of(s.mail, to).ring();
  // Collects arriving messages meanwhile, because their senders may wait for this worker.
  s.wait("send", to, [&] {
    const bool done = writer.flush();
    bell_of(s.mail, to).ring();
    return done;
  });
}

Bytes Spmd::receive_bytes(int from, int tag) {
  State& s = *state_;
  s.check_index(from);
  auto& waiting = s.letters[static_cast<size_t>(from)][tag];
  s.wait("receive", from, [&] { return !waiting.empty(); });
  Bytes content = std::move(waiting.front());
  waiting.pop_front();
  return content;
}

bool Spmd::probe(int from, int tag) {
  state_->check_index(from);
  state_->collect();
  return !state_->letters[static_cast<size_t>(from)][tag].empty();
}

namespace detail {

struct SpmdMemory::State {
  State(std::shared_ptr<PoolCore> core, int size, double limit) : pool(std::move(core)) {
    if (!(limit > 0)) throw InvalidArgument("[spmd] limit must be > 0 seconds");
    SharedMemory& memory = pool->memory();
    places = {memory.reserve(LocalGroup::bytes(group_options(size))),
              memory.reserve(mail_bytes(size)), size, limit};
    group = memory.map(places.group);
    mail = memory.map(places.mail);
    ticket.content = encode(places);
  }
  ~State() {
    pool->memory().free(places.group);
    pool->memory().free(places.mail);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<PoolCore> pool;
  Ticket places;
  SpmdTicket ticket;
  SharedRegion group, mail;
  std::atomic<int> reason{-1};
};

SpmdMemory::SpmdMemory(Pool& pool, int size, double limit)
    : state_(std::make_unique<State>(pool.core(), size, limit)) {}

SpmdMemory::~SpmdMemory() = default;

const SpmdTicket& SpmdMemory::ticket() const { return state_->ticket; }

int SpmdMemory::reason() const { return state_->reason; }

void SpmdMemory::start_all(const std::function<void(int)>& start) {
  const MutexLock one_block(state_->pool->blocks);
  for (int i = 0; i < state_->places.size; ++i) {
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
  head_of(s.mail).ended = 1;
  LocalGroup::abort(s.group);
  for (int i = 0; i < s.places.size; ++i) bell_of(s.mail, i).ring();
}

}  // namespace detail
}  // namespace lockstep
