// The control channel, and intruders on it.
#include "lockstep/parallel/messages/channel.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/parallel/messages/serialize.h"
#include "tests/parallel/network.h"

namespace lockstep {
namespace {

constexpr const char *kTcp = "tcp://127.0.0.1:*", *kTcp6 = "tcp://[::1]:*";

Bytes text(const std::string& s) { return encode(s); }

// Returns the next message, within a limit.
std::optional<ChannelServer::Message> receive(ChannelServer& server, double seconds) {
  for (const TimeLimit limit(seconds);;) {
    if (auto message = server.receive()) return message;
    if (limit.reached()) return std::nullopt;
    server.wait(limit, {});
  }
}

// Whether the server refuses a connection within a limit, without a message meanwhile.
bool refuses(ChannelServer& server,
             const std::function<bool(const ChannelServer::Refusals&)>& refused) {
  for (const TimeLimit limit(30); !limit.reached();) {
    if (receive(server, 0.02)) return false;
    if (refused(server.refusals())) return !receive(server, 0.1);
  }
  return false;
}

// Whether bytes arrive within a limit that belong to no message.
bool drops(ChannelServer& server) {
  const TimeLimit limit(30);
  server.wait(limit, {});
  return !limit.reached() && !server.receive();
}

std::unique_ptr<ChannelClient> client_of(const ChannelTicket& ticket) {
  return std::make_unique<ChannelClient>(ticket, -1, [] {});
}

class Channel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == kTcp6 && !testing::has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  }
};

TEST_P(Channel, CarriesMessagesBothWays) {
  ChannelServer server({.endpoint = GetParam()});
  const auto client = client_of(server.admit(7));
  client->send(text("hello"));
  const auto message = receive(server, 10);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->worker, 7u);
  EXPECT_EQ(message->content, text("hello"));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(server.send(7, text(std::to_string(i))));
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(client->receive(TimeLimit(10)), text(std::to_string(i)));
  }
  EXPECT_FALSE(client->receive(TimeLimit(0.01)));
  EXPECT_FALSE(server.send(8, text("no worker")));
}

TEST_P(Channel, UnknownKeysAreRefused) {
  ChannelServer server({.endpoint = GetParam()});
  ChannelServer other({.endpoint = GetParam()});
  ChannelTicket stranger = server.admit(1);
  const ChannelTicket elsewhere = other.admit(1);
  stranger.public_key = elsewhere.public_key;
  stranger.secret_key = elsewhere.secret_key;
  const auto client = client_of(stranger);
  client->send(text("let me in"));
  EXPECT_TRUE(refuses(server, [](const auto& r) { return r.keys > 0; }));
  EXPECT_FALSE(server.send(1, text("anybody?")));
}

// A worker's end that counts how its connections begin and end.
class CountingClient {
 public:
  explicit CountingClient(const ChannelTicket& ticket) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::ipv6, true);
    socket_.set(zmq::sockopt::handshake_ivl, 500);  // milliseconds
    socket_.set(zmq::sockopt::routing_id, "worker-" + std::to_string(ticket.worker));
    socket_.set(zmq::sockopt::curve_serverkey, ticket.server_key);
    socket_.set(zmq::sockopt::curve_publickey, ticket.public_key);
    socket_.set(zmq::sockopt::curve_secretkey, ticket.secret_key);
    if (zmq_socket_monitor(socket_.handle(), "inproc://events", ZMQ_EVENT_ALL) != 0) {
      throw Error("[test] no monitor");
    }
    events_.set(zmq::sockopt::linger, 0);
    events_.connect("inproc://events");
    socket_.connect(ticket.endpoint);
    socket_.send(zmq::str_buffer("let me in"), zmq::send_flags::dontwait);
  }

  // Connections that were made, that completed the handshake, and that ended without it.
  int begun = 0, shaken = 0, ended = 0;

  void look() {
    zmq::message_t event, address;
    while (events_.recv(event, zmq::recv_flags::dontwait)) {
      (void)events_.recv(address);
      uint16_t what = 0;
      if (event.size() >= sizeof what) std::memcpy(&what, event.data(), sizeof what);
      begun += what == ZMQ_EVENT_CONNECTED;
      shaken += what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
      ended += what == ZMQ_EVENT_DISCONNECTED;
    }
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, ZMQ_DEALER}, events_{context_, ZMQ_PAIR};
};

TEST_P(Channel, WithoutAKeyCheckNoClientConnects) {
  ChannelServer server({.endpoint = GetParam()});
  const ChannelTicket before = server.admit(1), after = server.admit(2);
  CountingClient first(before);
  ASSERT_TRUE(receive(server, 30)) << "a client with a checked key was not admitted";
  server.stop_checking_keys();
  CountingClient second(after);
  for (const TimeLimit limit(30); second.ended == 0 && !limit.reached(); second.look()) {
    ASSERT_FALSE(receive(server, 0.02));
  }
  EXPECT_GT(second.begun, 0);
  EXPECT_GT(second.ended, 0) << "it was not refused";
  EXPECT_EQ(second.shaken, 0);
  EXPECT_FALSE(receive(server, 0.1));
}

TEST_P(Channel, DismissedClientsCannotReturn) {
  ChannelServer server({.endpoint = GetParam()});
  const ChannelTicket ticket = server.admit(1);
  {
    const auto client = client_of(ticket);
    client->send(text("here"));
    ASSERT_TRUE(receive(server, 10));
    server.dismiss(1);
    client->send(text("still here"));
    EXPECT_TRUE(drops(server));
  }
  const auto again = client_of(ticket);
  again->send(text("back"));
  // This is not counted as a stranger, because a dismissed client's connection may be in progress.
  EXPECT_TRUE(refuses(server, [](const auto& r) { return r.dismissed > 0; }));
  EXPECT_EQ(server.refusals().keys, 0);
}

// A worker has its own key and cannot send as another worker.
TEST_P(Channel, NoClientCanSendAsAnother) {
  ChannelServer server({.endpoint = GetParam()});
  ChannelTicket ticket = server.admit(1);
  server.admit(2);
  ticket.worker = 2;
  const auto client = client_of(ticket);
  client->send(text("I am the other"));
  EXPECT_TRUE(drops(server));
}

TEST_P(Channel, WithoutEncryptionNoClientConnects) {
  ChannelServer server({.endpoint = GetParam()});
  server.admit(1);
  zmq::context_t context(1);
  zmq::socket_t socket(context, ZMQ_DEALER);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::ipv6, true);
  socket.set(zmq::sockopt::routing_id, "worker-1");
  socket.connect(server.endpoint());
  socket.send(zmq::str_buffer("plain"), zmq::send_flags::dontwait);
  EXPECT_TRUE(refuses(server, [](const auto& r) { return r.handshakes > 0; }));
}

TEST_P(Channel, MessagesThatAreTooLongEndTheConnection) {
  ChannelServer server({.endpoint = GetParam(), .most_bytes = 1000});
  const auto client = client_of(server.admit(1));
  client->send(Bytes(900));
  ASSERT_TRUE(receive(server, 10));
  // Later messages use another connection, and the long one never arrives.
  client->send(Bytes(100000));
  std::optional<ChannelServer::Message> later;
  for (const TimeLimit limit(30); !later && !limit.reached(); later = receive(server, 0.1)) {
    client->send(Bytes(10));
  }
  ASSERT_TRUE(later);
  EXPECT_EQ(later->content.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(
    Endpoints, Channel, ::testing::Values("", kTcp, kTcp6), [](const auto& endpoint) {
      return std::string(*endpoint.param == 0 ? "Local" : endpoint.param == kTcp6 ? "Tcp6" : "Tcp");
    });

// Connects by TCP and sends bytes that are not a handshake.
Descriptor knock(int port, const std::string& words) {
  Descriptor s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(s.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  [[maybe_unused]] const ssize_t n = ::send(s.get(), words.data(), words.size(), MSG_NOSIGNAL);
  return s;
}

int port_of(const ChannelServer& server) {
  return std::stoi(server.endpoint().substr(server.endpoint().rfind(':') + 1));
}

TEST(ChannelAttacks, GarbageHasNoEffect) {
  ChannelServer server({.endpoint = kTcp});
  const ChannelTicket ticket = server.admit(1);
  const auto client = client_of(ticket);
  client->send(text("one"));
  ASSERT_TRUE(receive(server, 10));
  std::vector<Descriptor> open;
  for (int i = 0; i < 50; ++i) {
    std::string words(static_cast<size_t>(1 + i * 20), '\0');
    for (size_t k = 0; k < words.size(); ++k) words[k] = static_cast<char>(k * 37 + i);
    open.push_back(knock(port_of(server), words));
    // The greeting of a real client, repeated by another sender, then random bytes.
    std::string greeting(
        "\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01"
        "CURVE",
        17);
    greeting.resize(64, '\0');
    open.push_back(knock(port_of(server), greeting + words));
  }
  EXPECT_TRUE(refuses(server, [](const auto& r) { return r.handshakes > 0; }));
  client->send(text("two"));
  const auto message = receive(server, 10);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->content, text("two"));
}

// A relay between a worker and its client, as an attacker in the network could run. Records the
// worker's bytes and forwards them chunk by chunk.
class Relay {
 public:
  explicit Relay(int port)
      : target_(port), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_.get(), any, size) != 0 || listen(listener_.get(), 8) != 0 ||
        getsockname(listener_.get(), any, &size) != 0) {
      throw Error("[test] no relay");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { carry(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }

  int port() const { return port_; }
  std::vector<std::string> said() const {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  // Repeats the last chunk within the connection.
  void repeat() { repeat_ = true; }
  // Connections that the client's end has closed.
  int closed() const { return closed_; }

 private:
  void carry() {
    Descriptor worker, client;
    std::vector<char> bytes(1 << 16);
    const auto move = [&](int from, int to) -> ssize_t {
      const ssize_t n = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n > 0) ::send(to, bytes.data(), static_cast<size_t>(n), MSG_NOSIGNAL);
      return n;
    };
    while (!stop_) {
      pollfd items[] = {
          {listener_.get(), POLLIN, 0}, {worker.get(), POLLIN, 0}, {client.get(), POLLIN, 0}};
      poll(items, 3, 10);
      if (items[0].revents & POLLIN) {
        worker = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        client = knock(target_, "");
      }
      if (items[1].revents != 0) {
        const ssize_t n = move(worker.get(), client.get());
        const std::lock_guard lock(mutex_);
        if (n > 0) said_.emplace_back(bytes.data(), static_cast<size_t>(n));
        if (n == 0) worker = {};
      }
      if (items[2].revents != 0 && move(client.get(), worker.get()) <= 0) {
        client = {};
        ++closed_;
      }
      if (repeat_.exchange(false)) {
        ::send(client.get(), said_.back().data(), said_.back().size(), MSG_NOSIGNAL);
      }
    }
  }

  const int target_;
  const Descriptor listener_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> said_;
  std::atomic<bool> stop_{false}, repeat_{false};
  std::atomic<int> closed_{0};
  std::thread thread_;
};

// Nonces and keys of a session are valid once.
TEST(ChannelAttacks, RecordedSessionsDoNotComeBack) {
  ChannelServer server({.endpoint = kTcp});
  Relay relay(port_of(server));
  ChannelTicket ticket = server.admit(1);
  ticket.endpoint = "tcp://127.0.0.1:" + std::to_string(relay.port());
  auto client = client_of(ticket);
  client->send(text("pay"));
  const auto message = receive(server, 10);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->content, text("pay"));
  const std::vector<std::string> recorded = relay.said();
  ASSERT_GE(recorded.size(), 3u) << "greeting, handshake, message";
  // From another sender, all at once and in chunks that wait for answers, during the session.
  std::string whole;
  for (const std::string& chunk : recorded) whole += chunk;
  const Descriptor once = knock(port_of(server), whole);
  const Descriptor slowly = knock(port_of(server), "");
  for (const std::string& chunk : recorded) {
    ::send(slowly.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(refuses(server, [](const auto& r) { return r.handshakes >= 2; }));
  // Within the session itself: its connection ends, and the message does not arrive twice.
  client->send(text("again"));
  ASSERT_TRUE(receive(server, 10));
  relay.repeat();
  EXPECT_TRUE(refuses(server, [&](const auto&) { return relay.closed() > 0; }));
  client.reset();
  const int64_t before = server.refusals().handshakes;
  const Descriptor later = knock(port_of(server), whole);
  EXPECT_TRUE(refuses(server, [&](const auto& r) { return r.handshakes > before; }));
}

TEST(ChannelAttacks, AThousandConnectionsDoNotKeepWorkersOut) {
  ChannelServer server({.endpoint = kTcp});
  const auto client = client_of(server.admit(1));
  client->send(text("before"));
  ASSERT_TRUE(receive(server, 10));
  const int port = port_of(server);
  std::thread attacker([port] {
    std::vector<Descriptor> open;
    for (int i = 0; i < 1000; ++i) {
      open.push_back(knock(port, "let me in"));
      if (open.size() > 100) open.erase(open.begin());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  double longest = 0;
  for (int i = 0; i < 100; ++i) {
    const auto before = TimeLimit::Clock::now();
    client->send(text(std::to_string(i)));
    const auto message = receive(server, 10);
    ASSERT_TRUE(message);
    longest =
        std::max(longest, std::chrono::duration<double>(TimeLimit::Clock::now() - before).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  attacker.join();
  std::printf("longest way of a message meanwhile: %.1f ms\n", longest * 1000);
  EXPECT_LT(longest, 2);
  const auto late = client_of(server.admit(2));
  late->send(text("late"));
  EXPECT_TRUE(receive(server, 10));
}

}  // namespace
}  // namespace lockstep
