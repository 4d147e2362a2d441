// The control channel between a client and its workers: ZeroMQ with CURVE. Every worker has a key
// pair of its own; whoever comes with another key, with none or without encryption is refused, also
// when the thread that checks keys has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/process/serialize.h"

namespace lockstep {

// What a worker needs to come to its client. Secret: passed by descriptor, never on a command line
// or in the environment.
struct ChannelTicket {
  uint32_t worker = 0;
  std::string endpoint, server_key, public_key, secret_key;  // keys as Z85 text

  template <class Archive>
  void serialize(Archive& archive) {
    archive(worker, endpoint, server_key, public_key, secret_key);
  }
};

struct ChannelOptions {
  // "": a local socket without a name in any folder, for this user's processes alone. Else an
  // endpoint of ZeroMQ, such as tcp://127.0.0.1:*.
  std::string endpoint = {};
  size_t most_bytes = size_t{16} << 20;  // of a message; longer ones end the connection
  int most_waiting = 10000;              // messages on their way to or from one worker
  // false: a connection that breaks is the end of it, so that no message can be missing between
  // others; whoever uses the channel looks himself whether the other end is there.
  bool reconnect = true;
};

// The client's end. One thread at a time.
class ChannelServer {
 public:
  struct Message {
    uint32_t worker = 0;
    Bytes content;
  };
  // Attempts that were refused so far.
  struct Refusals {
    int64_t keys = 0;        // unknown ones
    int64_t dismissed = 0;   // keys of workers that were dismissed
    int64_t handshakes = 0;  // without encryption, or broken; what is no greeting is not counted
  };

  // Throws Error where it cannot listen.
  explicit ChannelServer(const ChannelOptions& options = {});
  ~ChannelServer();

  const std::string& endpoint() const;
  // Fresh keys for a worker, which is admitted from now on.
  ChannelTicket admit(uint32_t worker);
  void dismiss(uint32_t worker);
  // False where the worker is not connected, or does not take what it was sent.
  bool send(uint32_t worker, std::span<const std::byte> content);
  // Waits until a message may be there, one of the descriptors is readable, or the limit.
  void wait(const TimeLimit& limit, std::span<const int> descriptors);
  // The next message that is there.
  std::optional<Message> receive();
  Refusals refusals() const;
  // Ends the thread that checks keys, for tests: nobody comes in from then on.
  void stop_checking_keys();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A worker's end, with a thread of its own. Thread-safe.
class ChannelClient {
 public:
  // `lifeline`: a descriptor that becomes readable (or closes) when the client is gone, -1: none;
  // `gone` is called then, or when the channel fails, by the channel's thread.
  ChannelClient(const ChannelTicket& ticket, int lifeline, std::function<void()> gone,
                const ChannelOptions& options = {});
  ~ChannelClient();

  // Hands a message to the channel's thread. Throws Timeout where the client has taken none for
  // half a minute.
  void send(Bytes content);
  // The next message; none at the limit.
  std::optional<Bytes> receive(const TimeLimit& limit);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
