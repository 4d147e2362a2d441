#include "lockstep/parallel/comm/host_group.h"

#include <arpa/inet.h>
#include <gloo/common/logging.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/broken_pipe.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/parallel/comm/collective_log.h"
#include "lockstep/parallel/comm/guarded_gloo.h"
#include "lockstep/parallel/comm/listening_ports.h"

namespace lockstep {
namespace {

std::chrono::milliseconds milliseconds(const TimeLimit& limit) {
  return std::chrono::milliseconds(std::max(1, limit.milliseconds_left()));
}

// Gloo's view of a rendezvous.
class Store final : public gloo::rendezvous::Store {
 public:
  Store(std::shared_ptr<Rendezvous> rendezvous, const TimeLimit& limit)
      : rendezvous_(std::move(rendezvous)), limit_(limit) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const auto* const bytes = reinterpret_cast<const std::byte*>(data.data());
    rendezvous_->set(key, Bytes(bytes, bytes + data.size()));
  }
  std::vector<char> get(const std::string& key) override {
    const Bytes bytes = rendezvous_->get(key, limit_);
    const auto* const data = reinterpret_cast<const char*>(bytes.data());
    return {data, data + bytes.size()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) rendezvous_->get(key, limit_);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  const std::shared_ptr<Rendezvous> rendezvous_;
  const TimeLimit limit_;
};

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
  explicit State(const HostGroupOptions& o) : options(o) {}

  const HostGroupOptions options;
  std::shared_ptr<gloo::rendezvous::Context> context;
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
      Store store(options.rendezvous, limit);
      gloo::rendezvous::PrefixStore own_store("group-" + std::to_string(options.generation), store);
      context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
      // Gloo waits five times this long for a connection.
      context->setTimeout(milliseconds(TimeLimit(limit.left() / 5)));
      const ListeningPorts ports(ports_to_use());
      context->connectFullMesh(own_store, device);
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
    std::vector<Digest> sent(size()), received(size());
    for (size_t r = 0; r < size(); ++r) sent[r] = token(own(), r);
    const std::vector<size_t> counts(size(), sizeof(Digest));
    exchange(std::as_bytes(std::span(sent)), counts, std::as_writable_bytes(std::span(received)),
             counts, limit);
    for (size_t r = 0; r < size(); ++r) {
      if (received[r] == token(r, own())) continue;
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

  void exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                std::span<std::byte> all, std::span<const size_t> from, const TimeLimit& limit) {
    if (broken) throw WorkerLost("[group] the group was ended before " + log.present());
    if (to[own()] > 0) {
      std::memcpy(all.data() + total(from.first(own())), mine.data() + total(to.first(own())),
                  to[own()]);
    }
    if (size() == 1) return;
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
    std::vector<bool> arrived(size(), true);
    try {
      size_t receives = 0, sends = 0, to_offset = 0, from_offset = 0;
      for (size_t r = 0; r < size(); ++r) {
        if (r != own() && from[r] > 0) {
          arrived[r] = false;
          ++receives;
          input->recv(static_cast<int>(r), log.sequence(), from_offset, from[r]);
        }
        from_offset += from[r];
      }
      for (size_t r = 0; r < size(); ++r) {
        if (r != own() && to[r] > 0) {
          ++sends;
          output->send(static_cast<int>(r), log.sequence(), to_offset, to[r]);
        }
        to_offset += to[r];
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
  const std::vector<std::byte> sent(s.size());
  std::vector<std::byte> received(s.size());
  const std::vector<size_t> counts(s.size(), 1);
  s.exchange(sent, counts, received, counts, limit);
  s.log.end();
}

void HostGroup::gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                       std::span<std::byte> all, const TimeLimit& limit) {
  State& s = *state_;
  s.log.begin("all_gather", all.size());
  // The same bytes for every member.
  std::vector<std::byte> copies;
  copies.reserve(mine.size() * s.size());
  for (size_t r = 0; r < s.size(); ++r) copies.insert(copies.end(), mine.begin(), mine.end());
  const std::vector<size_t> to(s.size(), mine.size());
  s.exchange(copies, to, all, counts, limit);
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
  const auto source = static_cast<size_t>(root);
  std::vector<size_t> to(s.size(), 0), from(s.size(), 0);
  std::vector<std::byte> copies;
  if (s.own() == source) {
    for (size_t r = 0; r < s.size(); ++r) {
      if (r == source) continue;
      to[r] = data.size();
      copies.insert(copies.end(), data.begin(), data.end());
    }
    s.exchange(copies, to, {}, from, limit);
  } else {
    from[source] = data.size();
    s.exchange({}, to, data, from, limit);
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
