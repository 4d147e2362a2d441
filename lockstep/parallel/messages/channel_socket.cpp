#include "lockstep/parallel/messages/channel_socket.h"

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep {
namespace channel {
namespace {

// Without reconnection there is only one try, which a busy machine must not fail.
constexpr int kHandshakeMilliseconds = 3000, kOnlyHandshakeMilliseconds = 30000;
constexpr int kHeartbeatMilliseconds = 500, kSilenceMilliseconds = 5000;

}  // namespace

void fail(const std::string& what, const zmq::error_t& error) {
  throw Error("[channel] " + what + ": " + error.what());
}

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

void set_up_sender(zmq::socket_t& socket, const std::string& name, const ChannelTicket& ticket) {
  socket.set(zmq::sockopt::routing_id, name);
  socket.set(zmq::sockopt::curve_serverkey, ticket.server_key);
  socket.set(zmq::sockopt::curve_publickey, ticket.public_key);
  socket.set(zmq::sockopt::curve_secretkey, ticket.secret_key);
}

Bytes bytes_of(const zmq::message_t& message) {
  const auto* const data = static_cast<const std::byte*>(message.data());
  return {data, data + message.size()};
}

std::string name_of(uint32_t worker) { return std::string(kWorker) + std::to_string(worker); }
std::string name_of_guests(uint32_t key) { return std::string(kGuest) + std::to_string(key); }

std::optional<uint32_t> number_in(std::string_view name, std::string_view prefix) {
  uint32_t number = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

}  // namespace channel

ChannelKeys ChannelKeys::fresh() {
  char public_key[41] = {}, secret_key[41] = {};
  if (zmq_curve_keypair(public_key, secret_key) != 0) {
    throw Error("[channel] ZeroMQ was built without CURVE");
  }
  return {public_key, secret_key};
}

}  // namespace lockstep
