#include "lockstep/parallel/comm/local_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/threads/futex.h"
#include "lockstep/base/threads/pause.h"
#include "lockstep/parallel/comm/collective_log.h"

namespace lockstep {
namespace {

// Covers small delays between members without a system call. A system call would take about as long
// to return on a core that has gone to sleep.
constexpr std::chrono::microseconds kSpin{200};
// Members write their outgoing data here, chunk by chunk.
constexpr size_t kStage = size_t{256} << 10;

enum Kind : uint32_t { nothing, barrier_kind, all_gather_kind, all_to_all_kind, broadcast_kind };
constexpr const char* kNames[] = {"nothing", "barrier", "all_gather", "all_to_all", "broadcast"};

// Everything lies in memory that is initially zero.
struct alignas(cache_line) Member {
  std::atomic<uint64_t> arrived;   // number of rendezvous it has reached
  std::atomic<uint64_t> sequence;  // of its last collective
  std::atomic<uint32_t> kind;      // of its last collective
};

struct alignas(cache_line) Head {
  std::atomic<uint32_t> ticks;  // changes when all have arrived, or the group is ended
  std::atomic<uint32_t> aborted;
  std::atomic<uint32_t> sleepers;  // may be too high: members that died asleep stay counted
  std::atomic<uint32_t> note;
};

size_t stage_offset(const LocalGroupOptions& o, int rank) {
  const auto n = static_cast<size_t>(o.size), r = static_cast<size_t>(rank);
  return sizeof(Head) + n * sizeof(Member) + r * kStage;
}

size_t window_offset(const LocalGroupOptions& o, int rank) {
  return stage_offset(o, o.size) + static_cast<size_t>(rank) * round_up(o.window_bytes);
}

Head& head_of(std::byte* memory) { return *std::launder(reinterpret_cast<Head*>(memory)); }

Member& member_of(std::byte* memory, int rank) {
  return *std::launder(reinterpret_cast<Member*>(memory + sizeof(Head) +
                                                 static_cast<size_t>(rank) * sizeof(Member)));
}

}  // namespace

struct LocalGroup::State {
  State(SharedRegion m, int r, const LocalGroupOptions& o)
      : memory(std::move(m)), rank(r), options(o) {}

  SharedRegion memory;
  const int rank;
  const LocalGroupOptions options;
  uint64_t rendezvous_count = 0;
  CollectiveLog log;

  Head& head() const { return head_of(memory.get()); }
  Member& member(int r) const { return member_of(memory.get(), r); }
  std::byte* stage(int r) const { return memory.get() + stage_offset(options, r); }

  bool all_came() const {
    for (int r = 0; r < options.size; ++r) {
      if (member(r).arrived.load() < rendezvous_count) return false;
    }
    return true;
  }

  void begin(Kind kind, size_t bytes) {
    log.begin(kNames[kind], bytes);
    member(rank).kind.store(kind);
    member(rank).sequence.store(log.sequence());
  }

  void end() { log.end(); }

  void check_alive() const {
    if (head().aborted.load() == 0) return;
    throw WorkerLost("[group] the group was ended during " + log.present());
  }

  [[noreturn]] void time_out() const {
    throw Timeout("[group] " + log.present() + " did not complete in time: " +
                      names_of(missing(memory, options), options.names) + " did not arrive",
                  "the last collectives were: " + log.text());
  }

  // Waits until all members have arrived. Their earlier writes are visible afterwards.
  void rendezvous(const TimeLimit& limit) {
    if (options.size == 1) return;
    ++rendezvous_count;
    member(rank).arrived.store(rendezvous_count);
    // Of the last two to arrive, at least one sees the other.
    if (all_came()) {
      head().ticks.fetch_add(1);
      if (head().sleepers.load() > 0) wake_all(head().ticks);
      check_alive();
      return;
    }
    if (options.spin && spin_until([this] { return all_came(); }, kSpin)) return check_alive();
    head().sleepers.fetch_add(1);
    for (;;) {
      const uint32_t ticks = head().ticks.load();
      const bool complete = all_came(), ended = head().aborted.load() != 0;
      if (complete || ended || limit.reached()) {
        head().sleepers.fetch_sub(1);
        check_alive();
        if (!complete) time_out();
        return;
      }
      wait_while(head().ticks, ticks, limit);
    }
  }
};

size_t LocalGroup::bytes(const LocalGroupOptions& options) {
  return window_offset(options, options.size);
}

size_t LocalGroup::head_bytes(const LocalGroupOptions& options) { return stage_offset(options, 0); }

LocalGroup::LocalGroup(SharedRegion memory, int rank, const LocalGroupOptions& options)
    : state_(std::make_unique<State>(std::move(memory), rank, options)) {
  check_member(rank, options.size);
}

LocalGroup::~LocalGroup() = default;

std::vector<std::unique_ptr<LocalGroup>> LocalGroup::of_threads(const LocalGroupOptions& options) {
  const size_t size = bytes(options);
  const std::align_val_t line{cache_line};
  auto* const data = static_cast<std::byte*>(::operator new(size, line));
  const SharedRegion memory(data, [line](std::byte* d) { ::operator delete(d, line); });
  std::memset(data, 0, size);
  std::vector<std::unique_ptr<LocalGroup>> members;
  for (int r = 0; r < options.size; ++r) {
    members.push_back(std::make_unique<LocalGroup>(memory, r, options));
  }
  return members;
}

int LocalGroup::rank() const { return state_->rank; }
int LocalGroup::size() const { return state_->options.size; }

void LocalGroup::barrier(const TimeLimit& limit) {
  state_->begin(barrier_kind, 0);
  state_->rendezvous(limit);
  state_->end();
}

void LocalGroup::gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                        std::span<std::byte> all, const TimeLimit& limit) {
  State& s = *state_;
  s.begin(all_gather_kind, all.size());
  const size_t longest = *std::max_element(counts.begin(), counts.end());
  for (size_t at = 0; at < longest || at == 0; at += kStage) {
    if (at < mine.size()) {
      std::memcpy(s.stage(s.rank), mine.data() + at, std::min(kStage, mine.size() - at));
    }
    s.rendezvous(limit);
    std::byte* to = all.data();
    for (int r = 0; r < size(); ++r) {
      const size_t count = counts[static_cast<size_t>(r)];
      if (at < count) std::memcpy(to + at, s.stage(r), std::min(kStage, count - at));
      to += count;
    }
    s.rendezvous(limit);
  }
  s.end();
}

// Round d: member r sends to member r + d.
void LocalGroup::exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                          std::span<std::byte> all, std::span<const size_t> from,
                          const TimeLimit& limit) {
  State& s = *state_;
  const auto n = static_cast<size_t>(size()), own = static_cast<size_t>(s.rank);
  s.begin(all_to_all_kind, mine.size());
  if (to[own] > 0) {
    std::memcpy(all.data() + total(from.first(own)), mine.data() + total(to.first(own)), to[own]);
  }
  for (size_t distance = 1; distance < n; ++distance) {
    const size_t target = (own + distance) % n, source = (own + n - distance) % n;
    const std::byte* const sent = mine.data() + total(to.first(target));
    std::byte* const received = all.data() + total(from.first(source));
    // All continue until the longest transfer is complete; only its two members know its length.
    for (size_t at = 0;; at += kStage) {
      const size_t bytes = at < to[target] ? std::min(kStage, to[target] - at) : 0;
      if (bytes > 0) std::memcpy(s.stage(s.rank), sent + at, bytes);
      s.member(s.rank).kind.store(at + bytes < to[target] ? all_to_all_kind : nothing);
      s.rendezvous(limit);
      bool more = false;
      for (int r = 0; r < size(); ++r) more = more || s.member(r).kind.load() != nothing;
      if (at < from[source]) {
        std::memcpy(received + at, s.stage(static_cast<int>(source)),
                    std::min(kStage, from[source] - at));
      }
      s.rendezvous(limit);
      if (!more) break;
    }
  }
  s.end();
}

void LocalGroup::send_from(std::span<std::byte> data, int root, const TimeLimit& limit) {
  State& s = *state_;
  s.begin(broadcast_kind, data.size());
  for (size_t at = 0; at < data.size() || at == 0; at += kStage) {
    const size_t bytes = at < data.size() ? std::min(kStage, data.size() - at) : 0;
    if (s.rank == root && bytes > 0) std::memcpy(s.stage(root), data.data() + at, bytes);
    s.rendezvous(limit);
    if (s.rank != root && bytes > 0) std::memcpy(data.data() + at, s.stage(root), bytes);
    s.rendezvous(limit);
  }
  s.end();
}

void LocalGroup::abort() { abort(state_->memory); }

bool LocalGroup::ended() const { return aborted(state_->memory); }

std::string LocalGroup::history() const { return state_->log.text(); }

std::byte* LocalGroup::window(int rank) const {
  return state_->memory.get() + window_offset(state_->options, rank);
}

size_t LocalGroup::window_bytes() const { return state_->options.window_bytes; }

void LocalGroup::abort(const SharedRegion& memory) {
  Head& head = head_of(memory.get());
  head.aborted.store(1);
  head.ticks.fetch_add(1);
  wake_all(head.ticks);
}

bool LocalGroup::aborted(const SharedRegion& memory) {
  return head_of(memory.get()).aborted.load() != 0;
}

std::atomic<uint32_t>& LocalGroup::note(const SharedRegion& memory) {
  return head_of(memory.get()).note;
}

std::vector<int> LocalGroup::missing(const SharedRegion& memory, const LocalGroupOptions& options) {
  uint64_t most = 0;
  for (int r = 0; r < options.size; ++r) {
    most = std::max(most, member_of(memory.get(), r).arrived.load());
  }
  std::vector<int> ranks;
  for (int r = 0; r < options.size; ++r) {
    if (member_of(memory.get(), r).arrived.load() < most) ranks.push_back(r);
  }
  return ranks;
}

std::string LocalGroup::describe_missing(const SharedRegion& memory,
                                         const LocalGroupOptions& options, int excused) {
  const std::vector<int> absent = missing(memory, options);
  std::vector<int> ranks = absent;
  std::erase(ranks, excused);
  if (ranks.empty()) return {};
  // Any present member shows where the others are: take the first.
  int present = 0;
  while (std::find(absent.begin(), absent.end(), present) != absent.end()) ++present;
  const Member& m = member_of(memory.get(), present);
  // During an exchange, `nothing` means that the member has no more to send.
  const uint32_t kind = m.kind.load() == nothing ? all_to_all_kind : m.kind.load();
  return names_of(ranks, options.names) + (ranks.size() == 1 ? " has" : " have") +
         " not arrived at " + kNames[std::min<uint32_t>(kind, broadcast_kind)] + " number " +
         std::to_string(m.sequence.load());
}

}  // namespace lockstep
