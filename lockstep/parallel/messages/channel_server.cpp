#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random_hex.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/parallel/messages/channel.h"
#include "lockstep/parallel/messages/channel_socket.h"

namespace lockstep {
namespace {

constexpr const char* kDomain = "lockstep";
constexpr const char* kKeyCheck = "inproc://zeromq.zap.01";
// Without this option a server admits unknown keys when no thread checks keys. The ZeroMQ headers
// do not define it.
constexpr int kEnforceDomain = 93;
// Connections that may wait to be accepted, within the system's limit (net.core.somaxconn).
// Thousands of hosts that come at once would otherwise try again after seconds.
constexpr int kBacklog = 4096;

ChannelKeys keys_of(const ChannelOptions& options) {
  return options.keys.secret_key.empty() ? ChannelKeys::fresh() : options.keys;
}

}  // namespace

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
      channel::fail("cannot send", error);
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
            s.socket.handle(), channel::kMonitor,
            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) != 0) {
      throw zmq::error_t();
    }
    events.connect(channel::kMonitor);
    auto both = std::make_shared<std::pair<zmq::socket_t, zmq::socket_t>>(std::move(questions),
                                                                          std::move(events));
    s.checker = quiet_thread([&s, both] {
      try {
        s.check_keys(std::move(both->first), std::move(both->second));
      } catch (const zmq::error_t&) {
        // No connection is admitted from now on.
      }
    });

    channel::set_up(s.socket, options, options.endpoint);
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
      // The abstract name space needs no file, so nothing remains however the client ends.
      s.socket.bind("ipc://@lockstep-" + random_hex(4));
    } else {
      s.bind(options.endpoint);
    }
    s.endpoint = s.socket.get(zmq::sockopt::last_endpoint);
  } catch (const zmq::error_t& error) {
    s.stop_checking();
    channel::fail("cannot listen" + (options.endpoint.empty() ? "" : " at " + options.endpoint),
                  error);
  }
}

ChannelServer::~ChannelServer() { state_->stop_checking(); }

const std::string& ChannelServer::endpoint() const { return state_->endpoint; }

const std::string& ChannelServer::server_key() const { return state_->keys.public_key; }

ChannelTicket ChannelServer::admit(uint32_t worker) {
  const ChannelKeys keys = ChannelKeys::fresh();
  state_->admit(channel::name_of(worker), keys.public_key);
  return {worker, state_->endpoint, state_->keys.public_key, keys.public_key, keys.secret_key};
}

void ChannelServer::dismiss(uint32_t worker) { state_->dismiss(channel::name_of(worker)); }

ChannelTicket ChannelServer::admit_guests(uint32_t key, const ChannelKeys& keys) {
  state_->admit(channel::name_of_guests(key), keys.public_key);
  return {0, state_->endpoint, state_->keys.public_key, keys.public_key, keys.secret_key};
}

void ChannelServer::dismiss_guests(uint32_t key) { state_->dismiss(channel::name_of_guests(key)); }

bool ChannelServer::send(uint32_t worker, std::span<const std::byte> content) {
  return state_->send(channel::name_of(worker), content);
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
    if (error.num() != EINTR) channel::fail("cannot wait", error);
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
    if (const auto key = channel::number_in(owner, channel::kGuest)) {
      // A guest chooses its name.
      if (name.starts_with(channel::kGuest))
        return Message{0, channel::bytes_of(parts[1]), name, *key};
    } else if (const auto worker = channel::number_in(owner, channel::kWorker);
               worker && name == owner) {
      return Message{*worker, channel::bytes_of(parts[1])};
    }
  }
}

ChannelServer::Refusals ChannelServer::refusals() const {
  const MutexLock lock(state_->mutex);
  return state_->refused;
}

void ChannelServer::stop_checking_keys() { state_->stop_checking(); }

}  // namespace lockstep
