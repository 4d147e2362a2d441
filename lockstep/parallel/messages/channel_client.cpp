#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random_hex.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/parallel/messages/channel.h"
#include "lockstep/parallel/messages/channel_socket.h"

namespace lockstep {
namespace {

constexpr double kSendLimit = 30;  // seconds

}  // namespace

Bytes ask_as_guest(const ChannelTicket& ticket, const Bytes& question, const TimeLimit& limit) {
  // A wrong key of the other end shows as a failed handshake, and so does a busy machine's.
  constexpr int kMostFailures = 3;
  try {
    zmq::context_t context(1);
    zmq::socket_t socket(context, ZMQ_DEALER), events(context, ZMQ_PAIR);
    channel::set_up(socket, {}, ticket.endpoint);
    channel::set_up_sender(socket, std::string(channel::kGuest) + random_hex(4), ticket);
    socket.set(zmq::sockopt::reconnect_ivl, 100);
    if (zmq_socket_monitor(socket.handle(), channel::kMonitor,
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                               ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) != 0) {
      throw zmq::error_t();
    }
    events.connect(channel::kMonitor);
    socket.connect(ticket.endpoint);
    socket.send(zmq::buffer(question), zmq::send_flags::none);
    for (int failures = 0; !limit.reached();) {
      zmq::pollitem_t items[] = {{socket.handle(), 0, ZMQ_POLLIN, 0},
                                 {events.handle(), 0, ZMQ_POLLIN, 0}};
      zmq::poll(items, 2, std::chrono::milliseconds(limit.milliseconds_left()));
      zmq::message_t message, address;
      if (items[0].revents != 0 && socket.recv(message, zmq::recv_flags::dontwait)) {
        return channel::bytes_of(message);
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
    channel::fail("cannot ask at " + ticket.endpoint, error);
  }
  throw Timeout("[join] nothing answers at " + ticket.endpoint,
                "the job may have ended, or the address or port is wrong");
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
      Bytes content = channel::bytes_of(message);
      const MutexLock lock(mutex);
      inbox.push_back(std::move(content));
      arrived.notify_all();
    }
  }

  void run(const ChannelTicket& ticket) {
    zmq::context_t context(1);
    zmq::socket_t socket(context, ZMQ_DEALER);
    channel::set_up(socket, options, ticket.endpoint);
    // The last messages are still delivered after the channel is closed.
    socket.set(zmq::sockopt::linger, 1000);
    channel::set_up_sender(socket, channel::name_of(ticket.worker), ticket);
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
