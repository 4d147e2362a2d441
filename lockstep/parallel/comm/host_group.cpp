#include "lockstep/parallel/comm/host_group.h"

#include <arpa/inet.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/broken_pipe.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/parallel/comm/collective_log.h"
#include "lockstep/parallel/comm/connections.h"
#include "lockstep/parallel/comm/guarded_gloo.h"
#include "lockstep/parallel/comm/listening_ports.h"
#include "lockstep/parallel/comm/two_step_collectives.h"
#include "lockstep/parallel/comm/two_steps.h"

namespace lockstep {
namespace {

std::chrono::milliseconds milliseconds(const TimeLimit& limit) {
  return std::chrono::milliseconds(std::max(1, limit.milliseconds_left()));
}

// Gloo's thread spins while another thread holds a lock that it needs. If it preempted that thread,
// it would delay it by a whole time slice. So it may run on any core and preempts no thread
// (SCHED_BATCH, which threads inherit).
std::shared_ptr<gloo::transport::Device> create_device(
    const gloo::transport::tcp::attr& attributes) {
  std::shared_ptr<gloo::transport::Device> device;
  std::exception_ptr error;
  quiet_thread([&] {
    run_on(all_cores());
    const sched_param none{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    try {
      device = create_guarded_device(attributes);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return device;
}

}  // namespace

bool is_private_address(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    const uint32_t a = ntohl(v4.s_addr);
    return a >> 24 == 127 || a >> 24 == 10 || a >> 20 == 0xac1 || a >> 16 == 0xc0a8 ||
           a >> 16 == 0xa9fe;
  }
  in6_addr v6{};
  if (inet_pton(AF_INET6, address.c_str(), &v6) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_LINKLOCAL(&v6) ||
           (v6.s6_addr[0] & 0xfe) == 0xfc;
  }
  throw InvalidArgument("[group] `" + address + "` is not an address");
}

struct HostGroup::State {
  explicit State(const HostGroupOptions& o)
      : options(o),
        steps(o.size, o.most_direct),
        two_steps(steps, o.rank,
                  [this](auto mine, const auto& to, auto all, const auto& from, uint64_t step,
                         const TimeLimit& limit) { move(mine, to, all, from, step, limit); }) {}

  const HostGroupOptions options;
  const TwoSteps steps;
  const TwoStepCollectives two_steps;  // used unless the group is direct
  std::shared_ptr<Connections> context;
  CollectiveLog log;
  // The buffers of the present exchange, which abort() reads.
  Mutex mutex;
  gloo::transport::UnboundBuffer* in LOCKSTEP_GUARDED_BY(mutex) = nullptr;
  gloo::transport::UnboundBuffer* out LOCKSTEP_GUARDED_BY(mutex) = nullptr;
  std::atomic<bool> aborted{false}, failed{false};  // ended by this member; a connection failed
  bool broken = false;

  size_t size() const { return static_cast<size_t>(options.size); }
  size_t own() const { return static_cast<size_t>(options.rank); }
  std::string name(size_t rank) const { return names_of({static_cast<int>(rank)}, options.names); }

  void connect(const TimeLimit& limit) {
    const NoBrokenPipe none;
    try {
      gloo::transport::tcp::attr attributes;
      attributes.hostname = options.address;
      auto device = create_device(attributes);
      context = std::make_shared<Connections>(options.rank, options.size);
      // Gloo waits five times this long for a connection.
      context->setTimeout(milliseconds(TimeLimit(limit.left() / 5)));
      const ListeningPorts ports(ports_to_use());
      context->connect(steps.neighbors(options.rank), *options.rendezvous, device, limit);
      failures.emplace([this](const gloo::transport::Pair* connection) {
        if (!context->has(connection)) return;
        failed = true;
        wake();
      });
    } catch (const gloo::Exception&) {
      apart();
    } catch (const gloo::EnforceNotMet&) {
      apart();
    }
  }

  [[noreturn]] void apart() const {
    throw Timeout("[group] " + std::to_string(options.size) +
                  " members did not connect: one of them could not be reached or did not connect "
                  "in time");
  }

  // The first message from `from` to `to`. It cannot be computed without the secret.
  Digest token(size_t from, size_t to) const {
    Digester digester;
    digester.add(std::string_view(options.secret));
    digester.add(static_cast<uint64_t>(options.generation));
    digester.add(static_cast<uint64_t>(from));
    digester.add(static_cast<uint64_t>(to));
    return digester.finish();
  }

  void check_members(const TimeLimit& limit) {
    log.begin("greeting", size() * sizeof(Digest));
    std::vector<Digest> sent, received;
    std::vector<MemberBytes> chunks;
    for (const int r : steps.neighbors(options.rank)) {
      chunks.push_back({r, sent.size() * sizeof(Digest), sizeof(Digest)});
      sent.push_back(token(own(), static_cast<size_t>(r)));
    }
    received.resize(sent.size());
    move(std::as_bytes(std::span(sent)), chunks, std::as_writable_bytes(std::span(received)),
         chunks, 0, limit);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto r = static_cast<size_t>(chunks[i].rank);
      if (received[i] == token(r, own())) continue;
      broken = true;
      throw Error("[group] the member that connected as " + name(r) +
                  " does not belong to generation " + std::to_string(options.generation));
    }
    log.end();
  }

  // Messages of a move, from members or to them.
  struct Awaited {
    std::vector<bool> present;  // by rank: whether it was reported, or none is awaited
    size_t count = 0;           // of those that have not come

    void add(const MemberBytes& chunk) {
      present[static_cast<size_t>(chunk.rank)] = false;
      ++count;
    }
    void arrived(int rank) {
      present[static_cast<size_t>(rank)] = true;
      --count;
    }
  };

  // "rank 2", "one of rank 1, rank 2". Of several messages that come at once, Gloo reports the
  // member of the last one only.
  std::string missing(const Awaited& awaited) const {
    std::vector<int> ranks;
    for (size_t r = 0; r < size(); ++r) {
      if (!awaited.present[r]) ranks.push_back(static_cast<int>(r));
    }
    const std::string names = names_of(ranks, options.names);
    if (ranks.size() <= awaited.count) return names;
    return (awaited.count == 1 ? "one" : std::to_string(awaited.count)) + " of " + names;
  }

  [[noreturn]] void fail(const Awaited& awaited, uint64_t step, const std::string& reason) {
    broken = true;
    const std::string names = missing(awaited);
    // Bytes of later steps wait for those of the steps before.
    const std::string others = step > 0 ? " (or members that these wait for)" : "";
    const std::string hint = "the last collectives were: " + log.text();
    if (aborted) throw WorkerLost("[group] the group was ended during " + log.present(), hint);
    if (reason.find("imed out") != std::string::npos) {
      throw Timeout("[group] " + log.present() + " did not complete in time: " + names +
                        " did not arrive" + others,
                    hint);
    }
    // Gloo does not report which connection broke: it may be one whose data had already arrived.
    throw WorkerLost("[group] a member was lost during " + log.present() +
                         (names.empty() ? "" : ", while " + names + " had not arrived" + others),
                     hint);
  }

  // See TwoStepCollectives::Move.
  void move(std::span<const std::byte> mine, const std::vector<MemberBytes>& to,
            std::span<std::byte> all, const std::vector<MemberBytes>& from, uint64_t step,
            const TimeLimit& limit) {
    if (broken) throw WorkerLost("[group] the group was ended before " + log.present());
    // Gloo writes from this thread, too, and a write to a dead peer would raise SIGPIPE.
    const NoBrokenPipe none;
    std::byte nothing{};
    // Gloo only reads this buffer.
    auto* const sent = mine.empty() ? &nothing : const_cast<std::byte*>(mine.data());
    const auto output = context->createUnboundBuffer(sent, std::max<size_t>(mine.size(), 1));
    const auto input = context->createUnboundBuffer(all.empty() ? &nothing : all.data(),
                                                    std::max<size_t>(all.size(), 1));
    {
      const MutexLock lock(mutex);
      in = input.get();
      out = output.get();
    }
    const uint64_t tag = TwoStepCollectives::kMessages * log.sequence() + step;
    Awaited awaited{.present = std::vector<bool>(size(), true)};
    try {
      for (const MemberBytes& chunk : from) {
        if (chunk.bytes == 0) continue;
        awaited.add(chunk);
        input->recv(chunk.rank, tag, chunk.offset, chunk.bytes);
      }
      for (const MemberBytes& chunk : to) {
        if (chunk.bytes > 0) output->send(chunk.rank, tag, chunk.offset, chunk.bytes);
      }
      while (awaited.count > 0) {
        int rank = 0;
        if (aborted || failed || !input->waitRecv(&rank, milliseconds(limit)))
          fail(awaited, step, "");
        awaited.arrived(rank);
      }
      // Bytes leave when the other member wants them, so who does not take them has not come.
      awaited.present.assign(size(), true);
      for (const MemberBytes& chunk : to) {
        if (chunk.bytes > 0) awaited.add(chunk);
      }
      while (awaited.count > 0) {
        int rank = 0;
        if (aborted || failed || !output->waitSend(&rank, milliseconds(limit)))
          fail(awaited, step, "");
        awaited.arrived(rank);
      }
      forget();
    } catch (const gloo::Exception& e) {
      forget();
      fail(awaited, step, e.what());
    } catch (const gloo::EnforceNotMet& e) {
      // The received bytes are not those of a member.
      forget();
      fail(awaited, step, e.what());
    } catch (...) {
      forget();
      throw;
    }
  }

  void exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                std::span<std::byte> all, std::span<const size_t> from, const TimeLimit& limit) {
    std::vector<MemberBytes> sent = bytes_by_rank(to), received = bytes_by_rank(from);
    if (to[own()] > 0) {
      std::memcpy(all.data() + received[own()].offset, mine.data() + sent[own()].offset, to[own()]);
    }
    if (size() == 1) return;
    if (!steps.direct()) {
      return in_two_steps([&] { two_steps.exchange(mine, sent, all, received, limit); });
    }
    sent[own()].bytes = received[own()].bytes = 0;
    move(mine, sent, all, received, 0, limit);
  }

  // After an error between the steps, members would wait for bytes that this one does not pass on.
  template <class Collective>
  void in_two_steps(const Collective& collective) {
    try {
      collective();
    } catch (...) {
      broken = true;
      throw;
    }
  }

  void gather(std::span<const std::byte> mine, std::span<const size_t> counts,
              std::span<std::byte> all, const TimeLimit& limit) {
    if (size() > 1 && !steps.direct()) {
      return in_two_steps([&] { two_steps.gather(mine, counts, all, limit); });
    }
    std::vector<MemberBytes> from = bytes_by_rank(counts), to;
    if (!mine.empty()) std::memcpy(all.data() + from[own()].offset, mine.data(), mine.size());
    if (size() == 1) return;
    from[own()].bytes = 0;
    for (int r = 0; r < options.size; ++r) {
      if (r != options.rank) to.push_back({r, 0, mine.size()});  // the same bytes for all
    }
    move(mine, to, all, from, 0, limit);
  }

  void forget() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    in = out = nullptr;
  }

  // Ends the waits of the present exchange. Thread-safe.
  void wake() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    if (in != nullptr) in->abortWaitRecv();
    if (out != nullptr) out->abortWaitSend();
  }

  // Destroyed first: it uses the members above.
  std::optional<ConnectionFailures> failures;
};

HostGroup::HostGroup(const HostGroupOptions& options, const TimeLimit& limit)
    : state_(std::make_unique<State>(options)) {
  check_member(options.rank, options.size);
  if (!is_private_address(options.address)) {
    throw InvalidArgument("[group] " + options.address + " is a public address",
                          "groups are not encrypted: use an address of a private network");
  }
  if (options.size == 1) return;
  state_->connect(limit);
  state_->check_members(limit);
}

HostGroup::~HostGroup() = default;

int HostGroup::rank() const { return state_->options.rank; }
int HostGroup::size() const { return state_->options.size; }

void HostGroup::barrier(const TimeLimit& limit) {
  State& s = *state_;
  s.log.begin("barrier", 0);
  const std::byte sent{};
  std::vector<std::byte> received(s.size());
  s.gather({&sent, 1}, std::vector<size_t>(s.size(), 1), received, limit);
  s.log.end();
}

void HostGroup::gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                       std::span<std::byte> all, const TimeLimit& limit) {
  State& s = *state_;
  s.log.begin("all_gather", all.size());
  s.gather(mine, counts, all, limit);
  s.log.end();
}

void HostGroup::exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                         std::span<std::byte> all, std::span<const size_t> from,
                         const TimeLimit& limit) {
  State& s = *state_;
  s.log.begin("all_to_all", mine.size());
  s.exchange(mine, to, all, from, limit);
  s.log.end();
}

void HostGroup::send_from(std::span<std::byte> data, int root, const TimeLimit& limit) {
  State& s = *state_;
  s.log.begin("broadcast", data.size());
  if (s.size() > 1 && !s.steps.direct()) {
    s.in_two_steps([&] { s.two_steps.send_from(data, root, limit); });
  } else if (s.size() > 1) {
    std::vector<MemberBytes> to, from;
    if (s.options.rank != root) from.push_back({root, 0, data.size()});
    for (int r = 0; s.options.rank == root && r < s.options.size; ++r) {
      if (r != root) to.push_back({r, 0, data.size()});
    }
    s.move(data, to, data, from, 0, limit);
  }
  s.log.end();
}

void HostGroup::abort() {
  state_->aborted = true;
  state_->wake();
}

bool HostGroup::ended() const { return state_->aborted; }

std::string HostGroup::history() const { return state_->log.text(); }

}  // namespace lockstep
