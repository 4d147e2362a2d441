#include "lockstep/parallel/messages/channel.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"

namespace lockstep {
namespace {

constexpr const char* kDomain = "lockstep";
constexpr const char* kKeyCheck = "inproc://zeromq.zap.01";
constexpr const char* kMonitor = "inproc://lockstep-monitor";
// Without this option a server admits unknown keys when no thread checks keys. The ZeroMQ headers
// do not define it.
constexpr int kEnforceDomain = 93;
// Without reconnection there is only one try, which a busy machine must not fail.
constexpr int kHandshakeMilliseconds = 3000, kOnlyHandshakeMilliseconds = 30000;
constexpr int kHeartbeatMilliseconds = 500, kSilenceMilliseconds = 5000;
constexpr double kSendLimit = 30;
// Connections that may wait to be accepted, within the system's limit (net.core.somaxconn).
// Thousands of hosts that come at once would otherwise try again after seconds.
constexpr int kBacklog = 4096;

[[noreturn]] void fail(const std::string& what, const zmq::error_t& error) {
  throw Error("[channel] " + what + ": " + error.what());
}

std::string random_name() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", source(), source(), source(), source());
}

// Options of both ends.
void set_up(zmq::socket_t& socket, const ChannelOptions& options, const std::string& endpoint) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(options.most_bytes));
  socket.set(zmq::sockopt::sndhwm, options.most_waiting);
  socket.set(zmq::sockopt::rcvhwm, options.most_waiting);
  if (endpoint.find('[') != std::string::npos) socket.set(zmq::sockopt::ipv6, true);
  socket.set(zmq::sockopt::handshake_ivl,
             options.reconnect ? kHandshakeMilliseconds : kOnlyHandshakeMilliseconds);
  if (!options.reconnect) return;
  socket.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMilliseconds);
  socket.set(zmq::sockopt::heartbeat_timeout, kSilenceMilliseconds);
  socket.set(zmq::sockopt::heartbeat_ttl, kSilenceMilliseconds);
}

Bytes bytes_of(const zmq::message_t& message) {
  const auto* const data = static_cast<const std::byte*>(message.data());
  return {data, data + message.size()};
}

// A worker's name: its routing id, and the user id that belongs to its key.
constexpr std::string_view kWorker = "worker-", kGuest = "guest-";
std::string name_of(uint32_t worker) { return std::string(kWorker) + std::to_string(worker); }
std::string name_of_guests(uint32_t key) { return std::string(kGuest) + std::to_string(key); }

// The number after the prefix.
std::optional<uint32_t> number_in(std::string_view name, std::string_view prefix) {
  uint32_t number = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

ChannelKeys keys_of(const ChannelOptions& options) {
  return options.keys.secret_key.empty() ? ChannelKeys::fresh() : options.keys;
}

}  // namespace

ChannelKeys ChannelKeys::fresh() {
  char public_key[41] = {}, secret_key[41] = {};
  if (zmq_curve_keypair(public_key, secret_key) != 0) {
    throw Error("[channel] ZeroMQ was built without CURVE");
  }
  return {public_key, secret_key};
}

struct ChannelServer::State {
  explicit State(const ChannelOptions& o)
      : options(o), keys(keys_of(o)), socket(context, ZMQ_ROUTER) {}

  const ChannelOptions options;
  const ChannelKeys keys;
  zmq::context_t context{1};
  zmq::socket_t socket;
  std::string endpoint;

  Mutex mutex;
  // Names of workers and guests, by public key, and public keys by name.
  std::map<std::string, std::string> admitted LOCKSTEP_GUARDED_BY(mutex);
  std::map<std::string, std::string> keys_by_name LOCKSTEP_GUARDED_BY(mutex);
  std::set<std::string> dismissed LOCKSTEP_GUARDED_BY(mutex);  // public keys
  Refusals refused LOCKSTEP_GUARDED_BY(mutex);
  std::atomic<bool> stop{false};
  std::thread checker;

  // Answers ZeroMQ's key requests (ZeroMQ RFC 27) and counts refused connections.
  void check_keys(zmq::socket_t questions, zmq::socket_t events) {
    while (!stop) {
      zmq::pollitem_t items[] = {{questions.handle(), 0, ZMQ_POLLIN, 0},
                                 {events.handle(), 0, ZMQ_POLLIN, 0}};
      zmq::poll(items, 2, std::chrono::milliseconds(50));
      if (items[1].revents & ZMQ_POLLIN) note(events);
      if (items[0].revents & ZMQ_POLLIN) answer(questions);
    }
  }

  void note(zmq::socket_t& events) {
    zmq::message_t event, address;
    if (!events.recv(event, zmq::recv_flags::dontwait)) return;
    if (event.more()) (void)events.recv(address, zmq::recv_flags::dontwait);
    uint16_t what = 0;
    if (event.size() >= sizeof what) std::memcpy(&what, event.data(), sizeof what);
    if (what != ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
        what != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
      return;
    }
    const MutexLock lock(mutex);
    ++refused.handshakes;
  }

  void answer(zmq::socket_t& questions) {
    // Version, request, domain, address, identity, mechanism, key.
    std::vector<zmq::message_t> question;
    if (!zmq::recv_multipart(questions, std::back_inserter(question))) return;
    std::vector<std::string> parts;
    for (const zmq::message_t& part : question) parts.push_back(part.to_string());
    std::string worker;
    if (parts.size() == 7 && parts[2] == kDomain && parts[5] == "CURVE" && parts[6].size() == 32) {
      char key[41];
      zmq_z85_encode(key, reinterpret_cast<const uint8_t*>(parts[6].data()), 32);
      const MutexLock lock(mutex);
      const auto found = admitted.find(key);
      if (found != admitted.end()) {
        worker = found->second;
      } else {
        // A worker that was dismissed after its death may still have had a connection attempt under
        // way.
        ++(dismissed.count(key) > 0 ? refused.dismissed : refused.keys);
      }
    }
    const std::string request = parts.size() > 1 ? parts[1] : "";
    const std::string answers[] = {
        "1.0",  request, worker.empty() ? "400" : "200", worker.empty() ? "unknown key" : "OK",
        worker, ""};
    for (size_t i = 0; i < std::size(answers); ++i) {
      questions.send(zmq::buffer(answers[i]),
                     i + 1 < std::size(answers) ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

  void admit(const std::string& name, const std::string& public_key) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    admitted.emplace(public_key, name);
    keys_by_name.emplace(name, public_key);
  }

  void dismiss(const std::string& name) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const auto found = keys_by_name.find(name);
    if (found == keys_by_name.end()) return;
    admitted.erase(found->second);
    dismissed.insert(found->second);
    keys_by_name.erase(found);
  }

  bool send(const std::string& name, std::span<const std::byte> content) {
    try {
      const auto flags = zmq::send_flags::dontwait;
      return socket.send(zmq::buffer(name), zmq::send_flags::sndmore | flags) &&
             socket.send(zmq::buffer(content.data(), content.size()), flags);
    } catch (const zmq::error_t& error) {
      if (error.num() == EHOSTUNREACH) return false;
      fail("cannot send", error);
    }
  }

  // Listens at the endpoint, or at the first free port of the range.
  void bind(const std::string& wanted) {
    constexpr std::string_view kAnyPort = ":*";
    if (options.first_port == 0 || !wanted.ends_with(kAnyPort)) return socket.bind(wanted);
    const std::string host = wanted.substr(0, wanted.size() - 1);
    for (int port = options.first_port;; ++port) {
      try {
        return socket.bind(host + std::to_string(port));
      } catch (const zmq::error_t& error) {
        if (error.num() != EADDRINUSE || port >= options.last_port) throw;
      }
    }
  }

  void stop_checking() {
    stop = true;
    if (checker.joinable()) checker.join();
  }
};

ChannelServer::ChannelServer(const ChannelOptions& options)
    : state_(std::make_unique<State>(options)) {
  State& s = *state_;
  try {
    // The key check must be bound before the socket listens.
    zmq::socket_t questions(s.context, ZMQ_REP), events(s.context, ZMQ_PAIR);
    questions.set(zmq::sockopt::linger, 0);
    questions.bind(kKeyCheck);
    if (zmq_socket_monitor(
            s.socket.handle(), kMonitor,
            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) != 0) {
      throw zmq::error_t();
    }
    events.connect(kMonitor);
    auto both = std::make_shared<std::pair<zmq::socket_t, zmq::socket_t>>(std::move(questions),
                                                                          std::move(events));
    s.checker = quiet_thread([&s, both] {
      try {
        s.check_keys(std::move(both->first), std::move(both->second));
      } catch (const zmq::error_t&) {
        // No connection is admitted from now on.
      }
    });

    set_up(s.socket, options, options.endpoint);
    s.socket.set(zmq::sockopt::router_mandatory, 1);
    s.socket.set(zmq::sockopt::backlog, kBacklog);
    s.socket.set(zmq::sockopt::curve_server, 1);
    s.socket.set(zmq::sockopt::curve_secretkey, s.keys.secret_key);
    s.socket.set(zmq::sockopt::zap_domain, kDomain);
    const int yes = 1;
    if (zmq_setsockopt(s.socket.handle(), kEnforceDomain, &yes, sizeof yes) != 0) {
      throw zmq::error_t();
    }
    if (options.endpoint.empty()) {
      const uid_t user = geteuid();
      if (zmq_setsockopt(s.socket.handle(), ZMQ_IPC_FILTER_UID, &user, sizeof user) != 0) {
        throw zmq::error_t();
      }
      // The abstract name space needs no file, so nothing is left behind however the client ends.
      s.socket.bind("ipc://@lockstep-" + random_name());
    } else {
      s.bind(options.endpoint);
    }
    s.endpoint = s.socket.get(zmq::sockopt::last_endpoint);
  } catch (const zmq::error_t& error) {
    s.stop_checking();
    fail("cannot listen" + (options.endpoint.empty() ? "" : " at " + options.endpoint), error);
  }
}

ChannelServer::~ChannelServer() { state_->stop_checking(); }

const std::string& ChannelServer::endpoint() const { return state_->endpoint; }

const std::string& ChannelServer::server_key() const { return state_->keys.public_key; }

ChannelTicket ChannelServer::admit(uint32_t worker) {
  const ChannelKeys keys = ChannelKeys::fresh();
  state_->admit(name_of(worker), keys.public_key);
  return {worker, state_->endpoint, state_->keys.public_key, keys.public_key, keys.secret_key};
}

void ChannelServer::dismiss(uint32_t worker) { state_->dismiss(name_of(worker)); }

ChannelTicket ChannelServer::admit_guests(uint32_t key, const ChannelKeys& keys) {
  state_->admit(name_of_guests(key), keys.public_key);
  return {0, state_->endpoint, state_->keys.public_key, keys.public_key, keys.secret_key};
}

void ChannelServer::dismiss_guests(uint32_t key) { state_->dismiss(name_of_guests(key)); }

bool ChannelServer::send(uint32_t worker, std::span<const std::byte> content) {
  return state_->send(name_of(worker), content);
}

bool ChannelServer::answer(const std::string& guest, std::span<const std::byte> content) {
  return state_->send(guest, content);
}

void ChannelServer::wait(const TimeLimit& limit, std::span<const int> descriptors) {
  std::vector<zmq::pollitem_t> items{{state_->socket.handle(), 0, ZMQ_POLLIN, 0}};
  for (const int d : descriptors) items.push_back({nullptr, d, ZMQ_POLLIN, 0});
  try {
    zmq::poll(items, std::chrono::milliseconds(limit.milliseconds_left()));
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) fail("cannot wait", error);
  }
}

std::optional<ChannelServer::Message> ChannelServer::receive() {
  zmq::socket_t& socket = state_->socket;
  for (;;) {
    std::vector<zmq::message_t> parts;
    if (!zmq::recv_multipart(socket, std::back_inserter(parts), zmq::recv_flags::dontwait)) {
      return std::nullopt;
    }
    if (parts.size() != 2) continue;  // a valid message has two parts: sender and content
    // The claimed sender must be the owner of the key.
    const std::string name = parts[0].to_string();
    const char* const owner = zmq_msg_gets(parts[1].handle(), "User-Id");
    if (owner == nullptr) continue;
    {
      const MutexLock lock(state_->mutex);
      if (state_->keys_by_name.count(owner) == 0) continue;
    }
    if (const auto key = number_in(owner, kGuest)) {
      // A guest chooses its name.
      if (name.starts_with(kGuest)) return Message{0, bytes_of(parts[1]), name, *key};
    } else if (const auto worker = number_in(owner, kWorker); worker && name == owner) {
      return Message{*worker, bytes_of(parts[1])};
    }
  }
}

ChannelServer::Refusals ChannelServer::refusals() const {
  const MutexLock lock(state_->mutex);
  return state_->refused;
}

void ChannelServer::stop_checking_keys() { state_->stop_checking(); }

Bytes ask_as_guest(const ChannelTicket& ticket, const Bytes& question, const TimeLimit& limit) {
  // A wrong key of the other end shows as a failed handshake, and so does a busy machine's.
  constexpr int kMostFailures = 3;
  try {
    zmq::context_t context(1);
    zmq::socket_t socket(context, ZMQ_DEALER), events(context, ZMQ_PAIR);
    set_up(socket, {}, ticket.endpoint);
    socket.set(zmq::sockopt::routing_id, std::string(kGuest) + random_name());
    socket.set(zmq::sockopt::curve_serverkey, ticket.server_key);
    socket.set(zmq::sockopt::curve_publickey, ticket.public_key);
    socket.set(zmq::sockopt::curve_secretkey, ticket.secret_key);
    socket.set(zmq::sockopt::reconnect_ivl, 100);
    if (zmq_socket_monitor(socket.handle(), kMonitor,
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                               ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) != 0) {
      throw zmq::error_t();
    }
    events.connect(kMonitor);
    socket.connect(ticket.endpoint);
    socket.send(zmq::buffer(question), zmq::send_flags::none);
    for (int failures = 0; !limit.reached();) {
      zmq::pollitem_t items[] = {{socket.handle(), 0, ZMQ_POLLIN, 0},
                                 {events.handle(), 0, ZMQ_POLLIN, 0}};
      zmq::poll(items, 2, std::chrono::milliseconds(limit.milliseconds_left()));
      zmq::message_t message, address;
      if (items[0].revents != 0 && socket.recv(message, zmq::recv_flags::dontwait)) {
        return bytes_of(message);
      }
      if (items[1].revents == 0 || !events.recv(message, zmq::recv_flags::dontwait)) continue;
      if (message.more()) (void)events.recv(address, zmq::recv_flags::dontwait);
      uint16_t what = 0;
      if (message.size() >= sizeof what) std::memcpy(&what, message.data(), sizeof what);
      const bool refused = what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
      if (refused || ++failures == kMostFailures) {
        throw InvalidArgument(
            "[join] " + ticket.endpoint + " refuses the key",
            "the key file must be of this job; each job has new keys, and a key ends with its job");
      }
    }
  } catch (const zmq::error_t& error) {
    fail("cannot ask at " + ticket.endpoint, error);
  }
  throw Timeout("[join] nothing answers at " + ticket.endpoint,
                "the job may have ended, or another machine or port is meant");
}

struct ChannelClient::State {
  State(const ChannelOptions& o, int line, std::function<void()> g)
      : options(o), lifeline(line), on_lost(std::move(g)) {}

  const ChannelOptions options;
  const int lifeline;
  const std::function<void()> on_lost;
  Descriptor bell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // wakes the channel's thread
  Mutex mutex;
  ConditionVariable arrived, left;
  std::deque<Bytes> inbox LOCKSTEP_GUARDED_BY(mutex);
  std::deque<Bytes> outbox LOCKSTEP_GUARDED_BY(mutex);
  bool stop LOCKSTEP_GUARDED_BY(mutex) = false;
  std::thread courier;

  void ring() const {
    const uint64_t one = 1;
    // The write fails only after 2^64 rings that were not read.
    [[maybe_unused]] const ssize_t written = write(bell.get(), &one, sizeof one);
  }

  // Sends the waiting messages. False when the channel is stopped and all are sent.
  bool deliver(zmq::socket_t& socket) {
    const MutexLock lock(mutex);
    while (!outbox.empty()) {
      const Bytes content = outbox.front();
      bool sent = false;
      {
        const MutexUnlock unlocked(mutex);
        sent = static_cast<bool>(socket.send(zmq::buffer(content), zmq::send_flags::dontwait));
      }
      if (!sent) return !stop;
      outbox.pop_front();
      left.notify_all();
    }
    return !stop;
  }

  void take_all(zmq::socket_t& socket) {
    zmq::message_t message;
    for (;;) {
      {
        const MutexLock lock(mutex);
        if (inbox.size() >= static_cast<size_t>(options.most_waiting)) return;
      }
      if (!socket.recv(message, zmq::recv_flags::dontwait)) return;
      Bytes content = bytes_of(message);
      const MutexLock lock(mutex);
      inbox.push_back(std::move(content));
      arrived.notify_all();
    }
  }

  void run(const ChannelTicket& ticket) {
    zmq::context_t context(1);
    zmq::socket_t socket(context, ZMQ_DEALER);
    set_up(socket, options, ticket.endpoint);
    // The last messages are still delivered after the channel is closed.
    socket.set(zmq::sockopt::linger, 1000);
    socket.set(zmq::sockopt::routing_id, name_of(ticket.worker));
    socket.set(zmq::sockopt::curve_serverkey, ticket.server_key);
    socket.set(zmq::sockopt::curve_publickey, ticket.public_key);
    socket.set(zmq::sockopt::curve_secretkey, ticket.secret_key);
    socket.set(zmq::sockopt::reconnect_ivl, options.reconnect ? 100 : -1);
    socket.set(zmq::sockopt::reconnect_ivl_max, options.reconnect ? 2000 : 0);
    socket.connect(ticket.endpoint);
    do {
      std::vector<zmq::pollitem_t> items{{socket.handle(), 0, ZMQ_POLLIN, 0},
                                         {nullptr, bell.get(), ZMQ_POLLIN, 0}};
      if (lifeline >= 0) items.push_back({nullptr, lifeline, ZMQ_POLLIN, 0});
      zmq::poll(items, std::chrono::milliseconds(200));
      if (lifeline >= 0 && items[2].revents != 0) {
        on_lost();
        return;
      }
      if (items[1].revents != 0) {
        uint64_t rings = 0;
        [[maybe_unused]] const ssize_t n = read(bell.get(), &rings, sizeof rings);
      }
      take_all(socket);
    } while (deliver(socket));
  }
};

ChannelClient::ChannelClient(const ChannelTicket& ticket, int lifeline,
                             std::function<void()> on_lost, const ChannelOptions& options)
    : state_(std::make_unique<State>(options, lifeline, std::move(on_lost))) {
  State& s = *state_;
  s.courier = quiet_thread([&s, ticket] {
    try {
      s.run(ticket);
    } catch (const std::exception&) {
      s.on_lost();  // without a channel the client counts as lost
    }
  });
}

ChannelClient::~ChannelClient() {
  {
    const MutexLock lock(state_->mutex);
    state_->stop = true;
  }
  state_->ring();
  state_->courier.join();
}

void ChannelClient::send(Bytes content) {
  {
    const TimeLimit limit(kSendLimit);
    const MutexLock lock(state_->mutex);
    while (state_->outbox.size() >= static_cast<size_t>(state_->options.most_waiting)) {
      if (limit.reached()) {
        throw Timeout("[channel] the client has read no message for " +
                      std::to_string(static_cast<int>(kSendLimit)) + " seconds");
      }
      state_->left.wait_until(state_->mutex, limit);
    }
    state_->outbox.push_back(std::move(content));
  }
  state_->ring();
}

std::optional<Bytes> ChannelClient::receive(const TimeLimit& limit) {
  const MutexLock lock(state_->mutex);
  while (state_->inbox.empty()) {
    if (limit.reached()) return std::nullopt;  // a limit of 0 makes no system call
    state_->arrived.wait_until(state_->mutex, limit);
  }
  Bytes content = std::move(state_->inbox.front());
  state_->inbox.pop_front();
  return content;
}

}  // namespace lockstep
