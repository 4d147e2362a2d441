#include "lockstep/parallel/comm/composite_group.h"

#include <cstring>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"

namespace lockstep {
namespace {

// The offsets of byte ranges with these sizes, and the total.
std::vector<size_t> offsets_of(std::span<const size_t> sizes) {
  std::vector<size_t> offsets(sizes.size() + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
  return offsets;
}

constexpr double kLook = 0.02;  // seconds

// Sets the flag CompositeGroupOptions::abroad during its lifetime.
class Abroad {
 public:
  explicit Abroad(std::atomic<uint32_t>* word) : word_(word) {
    if (word_ != nullptr) word_->store(1);
  }
  ~Abroad() {
    if (word_ != nullptr) word_->store(0);
  }
  Abroad(const Abroad&) = delete;
  Abroad& operator=(const Abroad&) = delete;

 private:
  std::atomic<uint32_t>* const word_;
};

}  // namespace

struct CompositeGroup::State {
  State(std::unique_ptr<Group> l, std::unique_ptr<Group> h, const CompositeGroupOptions& o)
      : local(std::move(l)), hosts(std::move(h)), options(o) {
    for (const int count : o.members) {
      firsts.push_back(size);
      size += static_cast<size_t>(count);
    }
    firsts.push_back(size);
    if (!hosts || !options.ended) return;
    watch = quiet_thread([this] {
      const MutexLock lock(mutex);
      while (!over && !options.ended()) over_came.wait_until(mutex, TimeLimit(kLook));
      if (!over) hosts->abort();
    });
  }
  ~State() {
    {
      const MutexLock lock(mutex);
      over = true;
      over_came.notify_all();
    }
    if (watch.joinable()) watch.join();
  }

  const std::unique_ptr<Group> local, hosts;
  const CompositeGroupOptions options;
  std::vector<size_t> firsts;  // rank of each host's first member, then the total size
  size_t size = 0;
  Mutex mutex;
  ConditionVariable over_came;
  bool over LOCKSTEP_GUARDED_BY(mutex) = false;
  std::thread watch;  // watches the host's group, in the host's first member

  // Communication with other hosts: runs `body` in the host's first member only.
  template <class F>
  void between_hosts(F&& body) {
    if (!leads()) return;
    const Abroad abroad(options.abroad);
    body(*hosts);
  }

  bool leads() const { return local->rank() == 0; }
  size_t host() const { return static_cast<size_t>(options.host); }
  size_t host_of(size_t rank) const {
    size_t h = 0;
    while (firsts[h + 1] <= rank) ++h;
    return h;
  }
  size_t members(size_t h) const { return firsts[h + 1] - firsts[h]; }

  // Ends both groups after an error, so that no member waits for this one.
  template <class F>
  void guarded(F&& body) {
    try {
      body();
    } catch (...) {
      abort();
      throw;
    }
  }

  void abort() {
    local->abort();
    if (hosts) hosts->abort();
  }

  // Collects the bytes of all members of the host at its first member, in order of ranks.
  void bring(std::span<const std::byte> mine, std::span<const size_t> counts,
             std::span<std::byte> all, const TimeLimit& limit) {
    const auto n = static_cast<size_t>(local->size());
    std::vector<size_t> to(n, 0), nothing(n, 0);
    to[0] = mine.size();
    local->all_to_all(mine, to, leads() ? all : std::span<std::byte>{}, leads() ? counts : nothing,
                      limit);
  }

  // The reverse: distributes bytes from the host's first member to each member.
  void hand_out(std::span<const std::byte> all, std::span<const size_t> counts,
                std::span<std::byte> mine, const TimeLimit& limit) {
    const auto n = static_cast<size_t>(local->size());
    std::vector<size_t> from(n, 0), nothing(n, 0);
    from[0] = mine.size();
    local->all_to_all(leads() ? all : std::span<const std::byte>{}, leads() ? counts : nothing,
                      mine, from, limit);
  }

  // The sizes of all members of the host, mine.size() of each.
  std::vector<size_t> gather_sizes(std::span<const size_t> mine, const TimeLimit& limit) {
    std::vector<size_t> all(mine.size() * static_cast<size_t>(local->size()));
    const std::vector<size_t> counts(static_cast<size_t>(local->size()), mine.size_bytes());
    local->all_gather(std::as_bytes(mine), counts, std::as_writable_bytes(std::span(all)), limit);
    return all;
  }

  // Runs in the host's first member. `to`, `from`: sizes by local member, then by rank. `sent`: the
  // bytes of all local members, ordered by local source. Returns the received bytes, ordered by
  // local target.
  std::vector<std::byte> exchange_between_hosts(std::span<const std::byte> sent,
                                                std::span<const size_t> to,
                                                std::span<const size_t> from,
                                                const TimeLimit& limit) {
    const size_t here = members(host());
    std::vector<size_t> host_to(options.members.size(), 0), host_from(options.members.size(), 0);
    std::vector<std::byte> packed(sent.size());
    const std::vector<size_t> sources = offsets_of(to);
    size_t at = 0;
    // For each host: ordered by target, then by source.
    for (size_t target = 0; target < size; ++target) {
      for (size_t source = 0; source < here; ++source) {
        const size_t pair = source * size + target;
        if (to[pair] == 0) continue;
        std::memcpy(packed.data() + at, sent.data() + sources[pair], to[pair]);
        at += to[pair];
        host_to[host_of(target)] += to[pair];
      }
    }
    for (size_t pair = 0; pair < from.size(); ++pair) {
      host_from[host_of(pair % size)] += from[pair];
    }
    const std::vector<size_t> targets = offsets_of(from);
    std::vector<std::byte> arrived(targets.back()), sorted(targets.back());
    between_hosts([&](Group& all) { all.all_to_all(packed, host_to, arrived, host_from, limit); });
    at = 0;
    for (size_t h = 0; h < options.members.size(); ++h) {
      for (size_t target = 0; target < here; ++target) {
        for (size_t source = firsts[h]; source < firsts[h + 1]; ++source) {
          const size_t pair = target * size + source;
          if (from[pair] == 0) continue;
          std::memcpy(sorted.data() + targets[pair], arrived.data() + at, from[pair]);
          at += from[pair];
        }
      }
    }
    return sorted;
  }
};

CompositeGroup::CompositeGroup(std::unique_ptr<Group> local, std::unique_ptr<Group> hosts,
                               const CompositeGroupOptions& options)
    : state_(std::make_unique<State>(std::move(local), std::move(hosts), options)) {
  const State& s = *state_;
  check_member(options.host, static_cast<int>(options.members.size()));
  const bool fits = s.local && s.members(s.host()) == static_cast<size_t>(s.local->size()) &&
                    s.leads() == (s.hosts != nullptr) &&
                    (!s.hosts || (s.hosts->rank() == options.host &&
                                  static_cast<size_t>(s.hosts->size()) == options.members.size()));
  if (!fits) {
    throw InvalidArgument("[group] the groups of host " + std::to_string(options.host) +
                          " are not those of its members");
  }
}

CompositeGroup::~CompositeGroup() = default;

int CompositeGroup::rank() const {
  return static_cast<int>(state_->firsts[state_->host()]) + state_->local->rank();
}
int CompositeGroup::size() const { return static_cast<int>(state_->size); }

void CompositeGroup::barrier(const TimeLimit& limit) {
  State& s = *state_;
  s.guarded([&] {
    s.local->barrier(limit);
    s.between_hosts([&](Group& hosts) { hosts.barrier(limit); });
    s.local->barrier(limit);
  });
}

void CompositeGroup::gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                            std::span<std::byte> all, const TimeLimit& limit) {
  State& s = *state_;
  s.guarded([&] {
    std::vector<size_t> by_host;
    for (size_t h = 0; h < s.options.members.size(); ++h) {
      by_host.push_back(total(counts.subspan(s.firsts[h], s.members(h))));
    }
    std::vector<std::byte> here(s.leads() ? by_host[s.host()] : 0);
    s.bring(mine, counts.subspan(s.firsts[s.host()], s.members(s.host())), here, limit);
    s.between_hosts([&](Group& hosts) { hosts.all_gather(here, by_host, all, limit); });
    s.local->broadcast(all, 0, limit);
  });
}

void CompositeGroup::exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                              std::span<std::byte> all, std::span<const size_t> from,
                              const TimeLimit& limit) {
  State& s = *state_;
  s.guarded([&] {
    const std::vector<size_t> sent = s.gather_sizes(to, limit);
    const std::vector<size_t> received = s.gather_sizes(from, limit);
    std::vector<size_t> given, taken;  // bytes of each member of the host
    for (size_t member = 0; member < s.members(s.host()); ++member) {
      given.push_back(total(std::span(sent).subspan(member * s.size, s.size)));
      taken.push_back(total(std::span(received).subspan(member * s.size, s.size)));
    }
    std::vector<std::byte> brought(s.leads() ? total(given) : 0), sorted;
    s.bring(mine, given, brought, limit);
    if (s.leads()) sorted = s.exchange_between_hosts(brought, sent, received, limit);
    s.hand_out(sorted, taken, all, limit);
  });
}

void CompositeGroup::send_from(std::span<std::byte> data, int root, const TimeLimit& limit) {
  State& s = *state_;
  s.guarded([&] {
    const auto source = static_cast<size_t>(root);
    const size_t source_host = s.host_of(source);
    const bool here = source_host == s.host();
    if (here) {
      s.local->broadcast(data, static_cast<int>(source - s.firsts[source_host]), limit);
    }
    s.between_hosts(
        [&](Group& hosts) { hosts.broadcast(data, static_cast<int>(source_host), limit); });
    if (!here) s.local->broadcast(data, 0, limit);
  });
}

void CompositeGroup::abort() { state_->abort(); }

bool CompositeGroup::ended() const {
  return state_->local->ended() || (state_->hosts && state_->hosts->ended());
}

std::string CompositeGroup::history() const {
  std::string text = "on this host: " + state_->local->history();
  if (state_->hosts) text += "; between hosts: " + state_->hosts->history();
  return text;
}

}  // namespace lockstep
