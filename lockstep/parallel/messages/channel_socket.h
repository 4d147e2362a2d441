// What both ends of the control channel have in common: sockets of ZeroMQ and names of senders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <zmq.hpp>

#include "lockstep/base/bytes.h"
#include "lockstep/parallel/messages/channel.h"

namespace lockstep::channel {

// Where a socket reports its failed handshakes.
inline constexpr const char* kMonitor = "inproc://lockstep-monitor";

// Throws Error with the reason.
[[noreturn]] void fail(const std::string& what, const zmq::error_t& error);

// Sets the options of both ends.
void set_up(zmq::socket_t& socket, const ChannelOptions& options, const std::string& endpoint);
// Sets a sender's name and keys.
void set_up_sender(zmq::socket_t& socket, const std::string& name, const ChannelTicket& ticket);

Bytes bytes_of(const zmq::message_t& message);

// A worker's name: its routing id, and the user id that belongs to its key.
inline constexpr std::string_view kWorker = "worker-", kGuest = "guest-";
std::string name_of(uint32_t worker);
std::string name_of_guests(uint32_t key);
// The number after the prefix.
std::optional<uint32_t> number_in(std::string_view name, std::string_view prefix);

}  // namespace lockstep::channel
