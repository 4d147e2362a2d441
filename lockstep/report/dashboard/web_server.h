// A small web server for one user of this machine: on loopback, for those who have the token.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lockstep/report/dashboard/event_streams.h"

namespace lockstep {

struct WebRequest {
  std::string method, path, body;
  std::map<std::string, std::string> parameters;  // of the query; the first of each name
  std::string parameter(const std::string& name) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? "" : found->second;
  }
};

struct WebResponse {
  int status = 200;
  std::string type = "application/json", body = {};
  bool own_policy = false;  // the page has its own content security policy
  EventSource events = {};  // if set: the response is a stream of these events
};

struct WebLimits {
  double answer = 60;  // seconds for an answer, including the wait for a free thread
  double stream = 30;  // seconds in which a browser reads nothing of its events
};

// One thread owns all connections and never waits for one of them; four threads call the handler.
// A connection carries one request. A request is refused with 403 unless its Host is this server,
// its Origin, if it has one, too, and it carries the token: as a cookie, or as the parameter
// `token` of the first page, which sets the cookie. This is decided when its head has arrived,
// before its body is read.
//
// A request that is not answered within WebLimits::answer gets status 503 (a disk may hang).
// EventStreams says when a stream of events ends.
//
// Strangers on this machine can open connections, so what they cost is bounded: 64 connections and
// streams at once, 5 seconds and 32 KiB for the head of a request, 1,280 new connections a second,
// and no descriptor of the last 256 (or the last half) that the process may have. Of more
// connections, the one that has waited longest for its request is closed. Not thread-safe.
class WebServer {
 public:
  using Handler = std::function<WebResponse(const WebRequest&)>;

  // Listens on 127.0.0.1. `port` 0: any free port. `handler` is called by several threads;
  // exceptions become status 400 (errors of Lockstep) or 500. `before_events` as in EventStreams.
  // Throws Error if the port is in use.
  WebServer(int port, Handler handler, int event_interval_ms, std::function<void()> before_events,
            const WebLimits& limits = {});
  // Ends all connections. Waits for a handler half a second at most; one that lasts longer (a disk
  // that hangs) goes on in its thread, so a handler must own what it uses.
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  int port() const;
  // "http://127.0.0.1:8123/?token=...": WebAccess::address().
  std::string address() const;

 private:
  struct State;
  static void end(State& state);
  std::shared_ptr<State> state_;  // shared with its threads
};

}  // namespace lockstep
