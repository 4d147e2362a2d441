// The control channel between a client and its workers: ZeroMQ with CURVE. Every worker has its own
// key pair. Connections with an unknown key, without a key or without encryption are refused, even
// after the thread that checks keys has ended.
//
// A guest is a process that has a key with which it may ask to become a worker, but no number yet.
// Any number of guests may have one key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

// The information with which a worker connects to its client. Secret: passed by descriptor, never
// on a command line or in the environment.
struct ChannelTicket {
  uint32_t worker = 0;                                       // 0: a guest
  std::string endpoint, server_key, public_key, secret_key;  // keys as Z85 text

  template <class Archive>
  void serialize(Archive& archive) {
    archive(worker, endpoint, server_key, public_key, secret_key);
  }
};

// A key pair as Z85 text.
struct ChannelKeys {
  std::string public_key, secret_key;
  // Throws Error if ZeroMQ has no CURVE.
  static ChannelKeys fresh();
};

struct ChannelOptions {
  // "": a local socket in the abstract name space, for processes of this user only. Otherwise a
  // ZeroMQ endpoint, such as tcp://127.0.0.1:*.
  std::string endpoint = {};
  size_t most_bytes = size_t{16} << 20;  // of a message; a longer one ends the connection
  int most_waiting = 10000;              // messages in transit to or from one worker
  // false: a broken connection is not restored, so that no message can be missing between two
  // others. The user of the channel must then check whether the other end is alive.
  bool reconnect = true;
  // Ports that an endpoint with "*" as its port may use; 0: any.
  int first_port = 0, last_port = 0;
  ChannelKeys keys = {};  // the client's; empty: new ones
};

// The client's end. One thread at a time.
class ChannelServer {
 public:
  struct Message {
    uint32_t worker = 0;  // 0: of a guest
    Bytes content;
    std::string guest = {};  // the guest's name, for the answer
    uint32_t key = 0;        // number of the guest's key
  };
  // Connection attempts refused so far.
  struct Refusals {
    int64_t keys = 0;        // unknown keys
    int64_t dismissed = 0;   // keys of dismissed workers
    int64_t handshakes = 0;  // unencrypted or broken; bytes that are not a greeting are not counted
  };

  // Throws Error if it cannot listen.
  explicit ChannelServer(const ChannelOptions& options = {});
  ~ChannelServer();

  const std::string& endpoint() const;
  const std::string& server_key() const;  // the public key
  // Creates keys for a worker and admits it from now on.
  ChannelTicket admit(uint32_t worker);
  void dismiss(uint32_t worker);
  // Admits guests with these keys, whose messages tell the number `key`. A ticket's worker is 0.
  ChannelTicket admit_guests(uint32_t key, const ChannelKeys& keys);
  void dismiss_guests(uint32_t key);
  // Sends to a guest, as send() does to a worker.
  bool answer(const std::string& guest, std::span<const std::byte> content);
  // False if the worker is not connected or does not take its messages.
  bool send(uint32_t worker, std::span<const std::byte> content);
  // Waits until a message may be available, a descriptor is readable, or the limit is reached.
  void wait(const TimeLimit& limit, std::span<const int> descriptors);
  // The next available message.
  std::optional<Message> receive();
  Refusals refusals() const;
  // Ends the thread that checks keys, for tests. No connection is admitted afterwards.
  void stop_checking_keys();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sends a guest's question and returns the answer. Tries again until the limit while nothing
// listens at the endpoint. Throws InvalidArgument if the key is refused or the other end has
// another key, Timeout without an answer.
Bytes ask_as_guest(const ChannelTicket& ticket, const Bytes& question, const TimeLimit& limit);

// A worker's end, with its own thread. Thread-safe.
class ChannelClient {
 public:
  // `lifeline`: a descriptor that becomes readable (or closes) when the client is lost; -1: none.
  // The channel's thread calls `on_lost` then, or when the channel fails.
  ChannelClient(const ChannelTicket& ticket, int lifeline, std::function<void()> on_lost,
                const ChannelOptions& options = {});
  ~ChannelClient();

  // Hands a message to the channel's thread. Throws Timeout if the client has taken no message for
  // half a minute.
  void send(Bytes content);
  // The next message; none at the limit.
  std::optional<Bytes> receive(const TimeLimit& limit);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
