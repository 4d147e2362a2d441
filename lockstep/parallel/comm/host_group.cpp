#include "lockstep/parallel/comm/host_group.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>

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
#include "lockstep/parallel/comm/two_steps.h"

namespace lockstep {
namespace {

// Bytes that a member may pass on for another one, so that no size can overflow.
constexpr size_t kMostPassing = size_t{1} << 40;

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

std::string fresh_group_secret() {
  std::random_device source;
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("{:08x}", source());
  return text;
}

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
  explicit State(const HostGroupOptions& o) : options(o), steps(o.size, o.most_direct) {}

  // Bytes for another member or from it, in a buffer.
  struct Piece {
    int rank = 0;
    size_t offset = 0, bytes = 0;
  };

  const HostGroupOptions options;
  const TwoSteps steps;
  std::shared_ptr<Connections> context;
  CollectiveLog log;
  // The buffers of the present exchange, which abort() reads.
  Mutex mutex;
  gloo::transport::UnboundBuffer* in LOCKSTEP_GUARDED_BY(mutex) = nullptr;
  gloo::transport::UnboundBuffer* out LOCKSTEP_GUARDED_BY(mutex) = nullptr;
  std::atomic<bool> aborted{false};
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
      context->connect(steps.neighbours(options.rank), *options.rendezvous, device, limit);
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
    std::vector<Piece> pieces;
    for (const int r : steps.neighbours(options.rank)) {
      pieces.push_back({r, sent.size() * sizeof(Digest), sizeof(Digest)});
      sent.push_back(token(own(), static_cast<size_t>(r)));
    }
    received.resize(sent.size());
    move(std::as_bytes(std::span(sent)), pieces, std::as_writable_bytes(std::span(received)),
         pieces, 0, limit);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto r = static_cast<size_t>(pieces[i].rank);
      if (received[i] == token(r, own())) continue;
      broken = true;
      throw Error("[group] the member that connected as " + name(r) +
                  " does not belong to generation " + std::to_string(options.generation));
    }
    log.end();
  }

  [[noreturn]] void fail(const std::vector<bool>& arrived, const std::string& reason) {
    broken = true;
    std::vector<int> missing;
    for (size_t r = 0; r < arrived.size(); ++r) {
      if (!arrived[r]) missing.push_back(static_cast<int>(r));
    }
    const std::string names = names_of(missing, options.names);
    const std::string hint = "the last collectives were: " + log.text();
    if (aborted) throw WorkerLost("[group] the group was ended during " + log.present(), hint);
    if (reason.find("imed out") != std::string::npos) {
      throw Timeout(
          "[group] " + log.present() + " did not complete in time: " + names + " did not arrive",
          hint);
    }
    // Gloo does not report which connection broke: it may be one whose data had already arrived.
    throw WorkerLost("[group] a member was lost during " + log.present() + ", while " + names +
                         " had not arrived",
                     hint);
  }

  // Sends pieces of one buffer and receives pieces into another one. `step` distinguishes the
  // messages of one collective, 0 to 3.
  void move(std::span<const std::byte> mine, const std::vector<Piece>& to, std::span<std::byte> all,
            const std::vector<Piece>& from, uint64_t step, const TimeLimit& limit) {
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
    const uint64_t tag = 4 * log.sequence() + step;
    std::vector<bool> arrived(size(), true);
    try {
      size_t receives = 0, sends = 0;
      for (const Piece& piece : from) {
        if (piece.bytes == 0) continue;
        arrived[static_cast<size_t>(piece.rank)] = false;
        ++receives;
        input->recv(piece.rank, tag, piece.offset, piece.bytes);
      }
      for (const Piece& piece : to) {
        if (piece.bytes == 0) continue;
        ++sends;
        output->send(piece.rank, tag, piece.offset, piece.bytes);
      }
      for (; receives > 0; --receives) {
        int rank = 0;
        if (aborted || !input->waitRecv(&rank, milliseconds(limit))) fail(arrived, "");
        arrived[static_cast<size_t>(rank)] = true;
      }
      for (; sends > 0; --sends) {
        int rank = 0;
        if (aborted || !output->waitSend(&rank, milliseconds(limit))) fail(arrived, "");
      }
      forget();
    } catch (const gloo::Exception& e) {
      forget();
      fail(arrived, e.what());
    } catch (const gloo::EnforceNotMet& e) {
      // The received bytes are not those of a member.
      forget();
      fail(arrived, e.what());
    } catch (...) {
      forget();
      throw;
    }
  }

  // The bytes of all members, at their places in an array in order of ranks.
  std::vector<Piece> places_of(std::span<const size_t> counts) const {
    std::vector<Piece> places(size());
    size_t offset = 0;
    for (size_t r = 0; r < size(); ++r) {
      places[r] = {static_cast<int>(r), offset, counts[r]};
      offset += counts[r];
    }
    return places;
  }

  void exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                std::span<std::byte> all, std::span<const size_t> from, const TimeLimit& limit) {
    std::vector<Piece> sent = places_of(to), received = places_of(from);
    if (to[own()] > 0) {
      std::memcpy(all.data() + received[own()].offset, mine.data() + sent[own()].offset, to[own()]);
    }
    if (size() == 1) return;
    if (!steps.direct()) return exchange_in_two_steps(mine, sent, all, received, limit);
    sent[own()].bytes = received[own()].bytes = 0;
    move(mine, sent, all, received, 0, limit);
  }

  // The ranks at a distance of the first or second step, for pieces of a message each.
  int nearer(int near) const { return steps.at(options.rank, near); }
  int further(int multiple) const { return steps.at(options.rank, multiple * steps.stride()); }

  // A member on the way of the bytes learns their sizes first. In each message the parts are
  // ordered by the other step's distance.
  void exchange_in_two_steps(std::span<const std::byte> mine, const std::vector<Piece>& to,
                             std::span<std::byte> all, const std::vector<Piece>& from,
                             const TimeLimit& limit) {
    const int stride = steps.stride(), multiples = steps.multiples();
    const auto row = static_cast<size_t>(multiples);
    const auto at = [&](int near, int multiple) {
      return static_cast<size_t>(near) * row + static_cast<size_t>(multiple);
    };
    const auto part = [](const std::vector<Piece>& pieces, int rank) {
      return pieces[static_cast<size_t>(rank)];
    };
    // The first step, by its distance.
    std::vector<uint64_t> sizes(static_cast<size_t>(stride) * row, 0), passing(sizes.size(), 0);
    std::vector<std::byte> packed;
    std::vector<Piece> give(static_cast<size_t>(stride)), take(give.size()), size_to, size_from;
    for (int near = 0; near < stride; ++near) {
      Piece& piece = give[static_cast<size_t>(near)];
      piece = {nearer(near), packed.size(), 0};
      for (int multiple = 0; multiple < multiples && steps.has(near, multiple); ++multiple) {
        const Piece bytes = part(to, steps.at(nearer(near), multiple * stride));
        if (near + multiple == 0) continue;  // this member itself
        sizes[at(near, multiple)] = bytes.bytes;
        packed.insert(packed.end(), mine.begin() + static_cast<std::ptrdiff_t>(bytes.offset),
                      mine.begin() + static_cast<std::ptrdiff_t>(bytes.offset + bytes.bytes));
      }
      piece.bytes = packed.size() - piece.offset;
      if (near == 0) continue;
      const size_t offset = at(near, 0) * sizeof(uint64_t), bytes = row * sizeof(uint64_t);
      size_to.push_back({nearer(near), offset, bytes});
      size_from.push_back({nearer(-near), offset, bytes});
    }
    std::copy_n(sizes.begin(), row, passing.begin());
    move(std::as_bytes(std::span(sizes)), size_to, std::as_writable_bytes(std::span(passing)),
         size_from, 0, limit);
    size_t total_bytes = 0;
    for (int near = 0; near < stride; ++near) {
      size_t bytes = 0;
      for (int multiple = 0; multiple < multiples; ++multiple) {
        bytes += passing[at(near, multiple)];
        if (passing[at(near, multiple)] > kMostPassing || bytes > kMostPassing) {
          broken = true;
          throw Error("[group] a member announced too many bytes");
        }
      }
      take[static_cast<size_t>(near)] = {nearer(-near), total_bytes, bytes};
      total_bytes += bytes;
    }
    std::vector<std::byte> brought(total_bytes);
    std::copy_n(packed.begin(), static_cast<std::ptrdiff_t>(give[0].bytes), brought.begin());
    give[0].bytes = take[0].bytes = 0;
    move(packed, give, brought, take, 1, limit);
    // The second step, by its distance.
    std::vector<size_t> next;
    for (const Piece& piece : take) next.push_back(piece.offset);
    std::vector<std::byte> sorted;
    sorted.reserve(total_bytes);
    std::vector<Piece> pass, last;
    size_t arriving = 0;
    for (int multiple = 0; multiple < multiples; ++multiple) {
      Piece piece{further(multiple), sorted.size(), 0};
      Piece coming{further(-multiple), arriving, 0};
      for (int near = 0; near < stride && steps.has(near, multiple); ++near) {
        const size_t bytes = passing[at(near, multiple)];
        const auto begin =
            brought.begin() + static_cast<std::ptrdiff_t>(next[static_cast<size_t>(near)]);
        sorted.insert(sorted.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
        next[static_cast<size_t>(near)] += bytes;
        if (near + multiple > 0) {
          coming.bytes += part(from, steps.at(options.rank, -near - multiple * stride)).bytes;
        }
      }
      piece.bytes = sorted.size() - piece.offset;
      arriving += coming.bytes;
      pass.push_back(piece);
      last.push_back(coming);
    }
    if (pass[0].bytes != last[0].bytes) {
      broken = true;
      throw InvalidArgument("[group] the sizes of an exchange differ between members");
    }
    std::vector<std::byte> arrived(arriving);
    std::copy_n(sorted.begin(), static_cast<std::ptrdiff_t>(pass[0].bytes), arrived.begin());
    pass[0].bytes = last[0].bytes = 0;
    move(sorted, pass, arrived, last, 2, limit);
    size_t read = 0;
    for (int multiple = 0; multiple < multiples; ++multiple) {
      for (int near = 0; near < stride && steps.has(near, multiple); ++near) {
        if (near + multiple == 0) continue;
        const Piece place = part(from, steps.at(options.rank, -near - multiple * stride));
        std::copy_n(arrived.begin() + static_cast<std::ptrdiff_t>(read), place.bytes,
                    all.begin() + static_cast<std::ptrdiff_t>(place.offset));
        read += place.bytes;
      }
    }
  }

  void gather(std::span<const std::byte> mine, std::span<const size_t> counts,
              std::span<std::byte> all, const TimeLimit& limit) {
    if (size() > 1 && !steps.direct()) return gather_in_two_steps(mine, counts, all, limit);
    std::vector<Piece> from = places_of(counts), to;
    if (!mine.empty()) std::memcpy(all.data() + from[own()].offset, mine.data(), mine.size());
    if (size() == 1) return;
    from[own()].bytes = 0;
    for (int r = 0; r < options.size; ++r) {
      if (r != options.rank) to.push_back({r, 0, mine.size()});  // the same bytes for all
    }
    move(mine, to, all, from, 0, limit);
  }

  // In the first step each member gets the bytes of the members shortly before it, and in the
  // second one it passes them on.
  void gather_in_two_steps(std::span<const std::byte> mine, std::span<const size_t> counts,
                           std::span<std::byte> all, const TimeLimit& limit) {
    const std::vector<Piece> places = places_of(counts);
    const auto place = [&](int rank) { return places[static_cast<size_t>(rank)]; };
    if (!mine.empty()) {
      std::memcpy(all.data() + place(options.rank).offset, mine.data(), mine.size());
    }
    const int stride = steps.stride();
    std::vector<Piece> give, take;
    for (int near = 1; near < stride; ++near) {
      give.push_back({nearer(near), 0, mine.size()});
      take.push_back(place(nearer(-near)));
    }
    move(mine, give, all, take, 0, limit);
    std::vector<std::byte> packed, arrived;
    give.clear();
    take.clear();
    size_t arriving = 0;
    for (int multiple = 1; multiple < steps.multiples(); ++multiple) {
      // Every message is the beginning of the same bytes.
      Piece to{further(multiple), 0, 0}, from{further(-multiple), arriving, 0};
      for (int near = 0; near < stride && steps.has(near, multiple); ++near) {
        const Piece own_part = place(nearer(-near));
        to.bytes += own_part.bytes;
        from.bytes += place(steps.at(options.rank, -near - multiple * stride)).bytes;
        if (multiple > 1) continue;
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(own_part.offset);
        packed.insert(packed.end(), begin, begin + static_cast<std::ptrdiff_t>(own_part.bytes));
      }
      arriving += from.bytes;
      give.push_back(to);
      take.push_back(from);
    }
    arrived.resize(arriving);
    move(packed, give, arrived, take, 1, limit);
    size_t read = 0;
    for (int multiple = 1; multiple < steps.multiples(); ++multiple) {
      for (int near = 0; near < stride && steps.has(near, multiple); ++near) {
        const Piece to = place(steps.at(options.rank, -near - multiple * stride));
        std::copy_n(arrived.begin() + static_cast<std::ptrdiff_t>(read), to.bytes,
                    all.begin() + static_cast<std::ptrdiff_t>(to.offset));
        read += to.bytes;
      }
    }
  }

  void send_in_two_steps(std::span<std::byte> data, int root, const TimeLimit& limit) {
    const int distance = steps.at(options.rank, -root);  // from the root
    const int near = distance % steps.stride(), multiple = distance / steps.stride();
    std::vector<Piece> give, take;
    if (distance == 0) {
      for (int step = 1; step < steps.stride(); ++step) {
        give.push_back({nearer(step), 0, data.size()});
      }
    } else if (multiple == 0) {
      take.push_back({root, 0, data.size()});
    }
    move(data, give, data, take, 0, limit);
    give.clear();
    take.clear();
    for (int step = 1; multiple == 0 && step < steps.multiples() && steps.has(near, step); ++step) {
      give.push_back({further(step), 0, data.size()});
    }
    if (multiple > 0) take.push_back({steps.at(root, near), 0, data.size()});
    move(data, give, data, take, 1, limit);
  }

  void forget() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    in = out = nullptr;
  }
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
    s.send_in_two_steps(data, root, limit);
  } else if (s.size() > 1) {
    std::vector<State::Piece> to, from;
    if (s.options.rank != root) from.push_back({root, 0, data.size()});
    for (int r = 0; s.options.rank == root && r < s.options.size; ++r) {
      if (r != root) to.push_back({r, 0, data.size()});
    }
    s.move(data, to, data, from, 0, limit);
  }
  s.log.end();
}

void HostGroup::abort() {
  State& s = *state_;
  s.aborted = true;
  const MutexLock lock(s.mutex);
  if (s.in != nullptr) s.in->abortWaitRecv();
  if (s.out != nullptr) s.out->abortWaitSend();
}

bool HostGroup::ended() const { return state_->aborted; }

std::string HostGroup::history() const { return state_->log.text(); }

}  // namespace lockstep
