#include "lockstep/report/dashboard/event_streams.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/threads/limited_thread.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {
namespace {

constexpr size_t kMostPending = size_t{32} << 20;  // bytes that a browser has not read
constexpr size_t kMostOfAll = 2 * kMostPending;    // that all have not, before more is asked for
constexpr double kWholePatience = 10;              // in patiences
constexpr int kIntervalsBetweenSigns = 20;         // of life, on a stream without events
constexpr double kStreamEndSeconds = 0.5;

struct OpenStream {
  Descriptor socket;
  EventSource source;
  std::string pending = {};
  size_t sent = 0;                   // bytes of it
  TimeLimit next_byte{0}, whole{0};  // for the browser, if something is pending
  int quiet = 0;

  size_t left() const { return pending.size() - sent; }
  // Returns false if the stream has ended.
  bool step(bool ask, double patience) {
    char ignored[256];
    const ssize_t got = ::recv(socket.get(), ignored, sizeof ignored, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return false;
    }
    if (pending.empty() && ask) {
      pending = source();
      quiet = pending.empty() ? quiet + 1 : 0;
      if (quiet >= kIntervalsBetweenSigns) {
        pending = ":\n\n";
        quiet = 0;
      }
      next_byte = TimeLimit(patience);
      whole = TimeLimit(kWholePatience * patience);
    }
    if (pending.size() > kMostPending) return false;
    return write(patience);
  }
  bool write(double patience) {
    while (left() > 0) {
      const ssize_t done =
          ::send(socket.get(), pending.data() + sent, left(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (done < 0) {
        const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        return later && !next_byte.reached() && !whole.reached();
      }
      sent += static_cast<size_t>(done);
      next_byte = TimeLimit(patience);
    }
    pending = {};
    sent = 0;
    return true;
  }
};

}  // namespace

struct EventStreams::State {
  double interval = 1, patience = 1;  // seconds
  size_t most = 0;
  std::function<void()> before;
  mutable Mutex mutex;
  ConditionVariable changed;
  std::vector<OpenStream> fresh LOCKSTEP_GUARDED_BY(mutex);
  size_t open LOCKSTEP_GUARDED_BY(mutex) = 0;  // with those in `fresh`
  bool ending LOCKSTEP_GUARDED_BY(mutex) = false;
  LimitedThread thread;

  void run();
};

EventStreams::EventStreams(int interval_ms, std::function<void()> before_each_interval, size_t most,
                           double patience)
    : state_(std::make_shared<State>()) {
  state_->interval = interval_ms / 1000.0;
  state_->patience = patience;
  state_->most = most;
  state_->before = std::move(before_each_interval);
  state_->thread = LimitedThread([state = state_] { state->run(); });
}

EventStreams::~EventStreams() { end(); }

void EventStreams::end() {
  if (!state_->thread.joinable()) return;
  State& s = *state_;
  {
    const MutexLock lock(s.mutex);
    s.ending = true;
    s.changed.notify_all();
  }
  s.thread.join(TimeLimit(kStreamEndSeconds));
}

void EventStreams::add(Descriptor socket, EventSource source) {
  const MutexLock lock(state_->mutex);
  if (state_->ending || state_->open >= state_->most) return;
  ++state_->open;
  state_->fresh.push_back({std::move(socket), std::move(source)});
  state_->changed.notify_all();
}

size_t EventStreams::size() const {
  const MutexLock lock(state_->mutex);
  return state_->open;
}

void EventStreams::State::run() {
  std::vector<OpenStream> streams;
  while (true) {
    {
      MutexLock lock(mutex);
      if (!ending && fresh.empty()) changed.wait_until(mutex, TimeLimit(interval));
      for (OpenStream& stream : fresh) streams.push_back(std::move(stream));
      fresh.clear();
      if (ending) break;
    }
    if (!streams.empty()) {
      try {
        before();
      } catch (const std::exception&) {  // the sources report what cannot be read
      }
    }
    std::vector<OpenStream> kept;
    size_t pending = 0;
    for (const OpenStream& stream : streams) pending += stream.left();
    // Each is the first in turn, so that none waits for ever for the others' bytes.
    if (!streams.empty()) std::rotate(streams.begin(), streams.begin() + 1, streams.end());
    for (OpenStream& stream : streams) {
      bool going = false;
      pending -= stream.left();
      try {
        going = stream.step(pending < kMostOfAll, patience);
      } catch (const std::exception&) {
      }
      if (!going) continue;
      pending += stream.left();
      kept.push_back(std::move(stream));
    }
    streams = std::move(kept);
    const MutexLock lock(mutex);
    open = streams.size() + fresh.size();
  }
}

}  // namespace lockstep
