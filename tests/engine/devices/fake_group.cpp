// Groups of stand-in devices in several processes. Their messages go through sockets that are found
// by the group's key.
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "tests/engine/devices/fake_device.h"

namespace lockstep::devicetest {
namespace {

using Bytes = std::vector<std::byte>;
using Progress = DeviceGroup::Progress;

// Messages are sent in chunks.
struct Head {
  int32_t from = 0;
  bool last = false;  // a message without data reports that its sender is present
};
constexpr size_t kChunk = 32 << 10;

struct Address {
  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: no file
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t bytes = 0;
};

// Outlives the group while a stream has work left.
struct Ways {
  Ways(const std::string& key, int r, int n)
      : rank(r), peers(static_cast<size_t>(n)), line(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    for (int i = 0; i < n; ++i) addresses.emplace_back("lockstep-" + key + "-" + std::to_string(i));
    const Address& own = addresses[static_cast<size_t>(rank)];
    if (bind(line.get(), own.get(), own.bytes) != 0) throw Error("[fake] the rank is taken");
    for (int i = 0; i < n; ++i) {
      if (i != rank) outbox.push_back({i, chunk({rank, false}, {})});
    }
  }

  struct Peer {
    bool heard = false;
    Bytes coming;
    std::deque<Bytes> messages;
  };

  static Bytes chunk(const Head& head, std::span<const std::byte> content) {
    Bytes all(sizeof head + content.size());
    std::memcpy(all.data(), &head, sizeof head);
    if (!content.empty()) std::memcpy(all.data() + sizeof head, content.data(), content.size());
    return all;
  }

  void say(const DeviceTransfer& t) {
    const std::span content(static_cast<const std::byte*>(t.data), t.bytes);
    for (size_t at = 0; at < t.bytes; at += kChunk) {
      const auto part = content.subspan(at, std::min(kChunk, t.bytes - at));
      outbox.push_back({t.rank, chunk({rank, at + kChunk >= t.bytes}, part)});
    }
  }

  void pump() {
    while (!outbox.empty()) {
      const auto& [to, bytes] = outbox.front();
      const Address& address = addresses[static_cast<size_t>(to)];
      const ssize_t sent = sendto(line.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                  address.get(), address.bytes);
      if (sent < 0 && outbox.size() > 1 && errno == ECONNREFUSED && !all_heard()) {
        // The other members may be present already.
        outbox.push_back(std::move(outbox.front()));
        outbox.pop_front();
      }
      if (sent < 0) break;
      outbox.pop_front();
    }
    Bytes buffer(sizeof(Head) + kChunk);
    for (;;) {
      const ssize_t n = recv(line.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < static_cast<ssize_t>(sizeof(Head))) return;
      Head head;
      std::memcpy(&head, buffer.data(), sizeof head);
      Peer& peer = peers.at(static_cast<size_t>(head.from));
      peer.heard = true;
      peer.coming.insert(peer.coming.end(), buffer.begin() + sizeof head, buffer.begin() + n);
      if (head.last) peer.messages.push_back(std::exchange(peer.coming, {}));
    }
  }

  bool all_heard() const {
    for (size_t i = 0; i < peers.size(); ++i) {
      if (static_cast<int>(i) != rank && !peers[i].heard) return false;
    }
    return true;
  }

  bool have(const std::vector<DeviceTransfer>& receives) {
    if (aborted) return true;
    pump();
    std::vector<size_t> wanted(peers.size());
    for (const DeviceTransfer& t : receives) ++wanted.at(static_cast<size_t>(t.rank));
    for (size_t i = 0; i < peers.size(); ++i) {
      if (peers[i].messages.size() < wanted[i]) return false;
    }
    return outbox.empty();
  }

  void take(const DeviceTransfer& t) {
    if (aborted) return;
    auto& messages = peers.at(static_cast<size_t>(t.rank)).messages;
    if (messages.front().size() != t.bytes) throw Error("[fake] sizes that do not fit together");
    std::memcpy(t.data, messages.front().data(), t.bytes);
    messages.pop_front();
  }

  const int rank;
  std::vector<Peer> peers;
  std::vector<Address> addresses;
  Descriptor line;
  std::deque<std::pair<int, Bytes>> outbox;
  bool aborted = false, begun = false;
};

class FakeGroup final : public DeviceGroup {
 public:
  FakeGroup(const FakeOptions& options, const std::string& key, int rank, int size)
      : options_(options), ways_(std::make_shared<Ways>(key, rank, size)) {}
  ~FakeGroup() override { abort(); }

  void exchange(std::span<const DeviceTransfer> sends, std::span<const DeviceTransfer> receives,
                void* stream) override {
    if (pending_) throw InternalError("[fake] an exchange while another one is pending");
    pending_ = true;
    ways_->begun = false;
    ++number_;
    lost_ = lost_ || (options_.loses && options_.loses(number_));
    add_to(stream,
           [ways = ways_, sends = std::vector(sends.begin(), sends.end()), lost = lost_] {
             ways->begun = true;
             if (lost) return;
             for (const DeviceTransfer& t : sends) ways->say(t);
           },
           {});
    const std::vector all(receives.begin(), receives.end());
    add_to(
        stream,
        [ways = ways_, all] {
          for (const DeviceTransfer& t : all) ways->take(t);
        },
        [ways = ways_, all] { return ways->have(all); });
  }

  Progress progress(void* stream) override {
    if (number_ == 0) {
      ways_->pump();
      return ways_->all_heard() && ways_->outbox.empty() ? Progress::done : Progress::pending;
    }
    if (std::exchange(pending_, false)) return Progress::pending;
    const bool done = run_ready(stream);
    if (ways_->begun && std::exchange(told_, number_) != number_ && options_.on_exchange) {
      options_.on_exchange(number_);
    }
    return done ? Progress::done : Progress::queued;
  }

  void abort() noexcept override {
    ways_->aborted = true;
    ways_->outbox.clear();
  }

 private:
  const FakeOptions options_;
  const std::shared_ptr<Ways> ways_;
  bool pending_ = false, lost_ = false;
  int64_t number_ = 0, told_ = 0;
};

class FakeGroups final : public DeviceGroups {
 public:
  explicit FakeGroups(const FakeOptions& options) : options_(options) {}
  std::string identity() override { return options_.identity; }
  std::string make_key() override {
    if (options_.on_join) options_.on_join("key");
    std::random_device source;
    return std::to_string(source()) + "-" + std::to_string(source());
  }
  std::unique_ptr<DeviceGroup> join(const std::string& key, int rank, int size) override {
    if (options_.on_join) options_.on_join("join");
    return std::make_unique<FakeGroup>(options_, key, rank, size);
  }

 private:
  const FakeOptions options_;
};

}  // namespace

std::shared_ptr<DeviceGroups> make_fake_groups(const FakeOptions& options) {
  if (options.identity.empty()) return nullptr;
  return std::make_shared<FakeGroups>(options);
}

}  // namespace lockstep::devicetest
