// Server-sent events to any number of browsers from one thread. No thread of the server is occupied
// by a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/os/descriptor.h"

namespace lockstep {

// What a stream tells its browser: called every interval by the streams' thread, it returns
// complete events ("event: log\ndata: {...}\n\n") or "".
using EventSource = std::function<std::string()>;

// Thread-safe. What browsers have not read is bounded: 32 MiB for one stream, and no source is
// asked while all streams together have 64 MiB or more.
class EventStreams {
 public:
  // Asks the sources of at most `most` streams every `interval_ms` milliseconds;
  // `before_each_interval` is called once before them. Throws Error if no thread can be started. A
  // browser that reads nothing of what is pending for `patience` seconds loses its stream, and one
  // that needs ten times as long for all of it, too.
  EventStreams(int interval_ms, std::function<void()> before_each_interval, size_t most,
               double patience = 30);
  // Closes all streams. Waits for sources half a second at most; one that lasts longer (a disk that
  // hangs) goes on in the streams' thread, so sources must own what they use.
  ~EventStreams();
  // The same, before the destruction.
  void end();
  EventStreams(const EventStreams&) = delete;
  EventStreams& operator=(const EventStreams&) = delete;

  // Takes over a connected socket whose response headers are sent. The stream ends when the browser
  // closes it, when the browser reads too slowly or is sent too much, or when the source throws.
  // Closes the socket if there are too many streams.
  void add(Descriptor socket, EventSource source);
  size_t size() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
