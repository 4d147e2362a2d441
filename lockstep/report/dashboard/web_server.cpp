#include "lockstep/report/dashboard/web_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/threads/limited_thread.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/report/dashboard/http_request.h"
#include "lockstep/report/dashboard/web_access.h"

namespace lockstep {
namespace {

constexpr int kThreads = 4;
constexpr size_t kMostConnections = 64;  // with streams
constexpr size_t kMostStreams = 48;      // of them, so that requests remain possible
constexpr size_t kMostHead = size_t{32} << 10;
constexpr size_t kMostBody = size_t{1} << 16;
constexpr double kRequestSeconds = 5;   // for a head, and for a body
constexpr double kPatienceSeconds = 5;  // for a browser that reads nothing
constexpr double kLingerSeconds = 1;    // for what a browser still sends
constexpr size_t kMostLingering = size_t{1} << 20;
constexpr double kEndSeconds = 0.5;  // for handlers at the end
constexpr size_t kReservedDescriptors = 256;
// Strangers must not occupy a processor: so many connections in an interval, and a pause between
// two looks at all sockets.
constexpr int kMostAccepted = 64;
constexpr double kAcceptSeconds = 0.05;
constexpr std::chrono::milliseconds kPause{2};

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Whether a descriptor leaves enough of them to the rest of the process. The system gives the
// smallest that is free.
bool is_spare(int descriptor) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  const auto all = static_cast<size_t>(limit.rlim_cur);
  return static_cast<size_t>(descriptor) + std::min(kReservedDescriptors, all / 2) < all;
}

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

using Headers = std::vector<std::pair<std::string, std::string>>;

// The headers of every response.
Headers usual_headers() {
  return {{"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-store"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

// What is sent, and what follows.
struct Reply {
  std::string text;
  EventSource events = {};
};

Reply reply_of(int status, const std::string& type, const std::string& body,
               const Headers& more = {}) {
  Headers headers = usual_headers();
  headers.insert(headers.end(), more.begin(), more.end());
  return {http_response_head(status, type, static_cast<int64_t>(body.size()), headers) + body};
}

struct Connection {
  enum class Phase { head, body, answering, writing, lingering };
  int64_t number = 0;
  Descriptor socket;
  Phase phase = Phase::head;
  TimeLimit limit{kRequestSeconds};
  std::string text = {};  // received, then to be sent
  size_t done = 0;        // bytes of it that are sent; of lingering: that came and were dropped
  HttpHead head = {};
  EventSource events = {};

  void turn(Phase to, double seconds) {
    phase = to;
    limit = TimeLimit(seconds);
  }
  short awaited() const {
    return phase == Phase::answering ? short{0} : phase == Phase::writing ? POLLOUT : POLLIN;
  }
};

struct Question {
  int64_t number = 0;
  WebRequest request;
};

}  // namespace

struct WebServer::State {
  State(Handler h, int event_interval_ms, std::function<void()> before, const WebLimits& limits)
      : handler(std::move(h)),
        answer_seconds(limits.answer),
        streams(event_interval_ms, std::move(before), kMostStreams, limits.stream) {}

  const Handler handler;
  const double answer_seconds;
  std::optional<WebAccess> access;  // once it listens
  int port = 0;
  Descriptor listener, wake;
  EventStreams streams;

  Mutex mutex;
  ConditionVariable asked;
  std::deque<Question> questions LOCKSTEP_GUARDED_BY(mutex);
  std::vector<std::pair<int64_t, Reply>> replies LOCKSTEP_GUARDED_BY(mutex);
  bool ending LOCKSTEP_GUARDED_BY(mutex) = false;
  std::vector<LimitedThread> workers;
  std::thread door;

  // Of the door's thread.
  std::vector<Connection> connections;
  int64_t last_number = 0;
  int accepted = 0;
  TimeLimit interval{0};

  void listen_at(int wanted);
  void answer_questions();
  Reply answer(const WebRequest& request) const;

  void serve();
  bool may_accept();
  void accept_some();
  void make_room();
  void read(Connection& c);
  void judge(Connection& c, size_t head_size);
  std::optional<Reply> own_reply(const Connection& c) const;
  void reply(Connection& c, Reply made);
  void write(Connection& c);
  void close_late();
  void give_up(Connection& c);
};

void WebServer::State::listen_at(int wanted) {
  const auto refuse = [&] {
    return Error("[dashboard] port " + std::to_string(wanted) + " cannot be used",
                 "another program may use it; choose another --port, or 0 for any free one");
  };
  listener = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  wake = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener || !wake) throw Error("[dashboard] the system gives no more sockets");
  const int yes = 1;  // without SO_REUSEPORT, by which another process could share the port
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(wanted));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    throw refuse();
  }
  port = ntohs(at.sin_port);
  access.emplace(port);
}

void WebServer::State::answer_questions() {
  while (true) {
    Question question;
    {
      MutexLock lock(mutex);
      while (questions.empty() && !ending) asked.wait(mutex);
      if (ending) break;
      question = std::move(questions.front());
      questions.pop_front();
    }
    Reply made = answer(question.request);
    const MutexLock lock(mutex);
    replies.emplace_back(question.number, std::move(made));
    ::eventfd_write(wake.get(), 1);
  }
}

Reply WebServer::State::answer(const WebRequest& request) const {
  WebResponse made;
  const auto failed = [&](int status, const char* why, const std::string& hint = {}) {
    made = {.status = status};
    nlohmann::json json{{"error", why}};
    if (!hint.empty()) json["hint"] = hint;
    made.body = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  try {
    made = handler(request);
  } catch (const Error& e) {
    failed(400, e.what(), e.hint());
  } catch (const std::bad_alloc&) {
    failed(500, out_of_memory_text().c_str());
  } catch (const std::exception& e) {
    failed(500, e.what());
  }
  Headers policy;
  if (!made.own_policy) policy.emplace_back("Content-Security-Policy", kPolicy);
  if (!made.events) return reply_of(made.status, made.type, made.body, policy);
  Headers headers = usual_headers();
  headers.insert(headers.end(), policy.begin(), policy.end());
  return {http_response_head(200, "text/event-stream", -1, headers) + "retry: 1000\n\n",
          std::move(made.events)};
}

void WebServer::State::serve() {
  while (true) {
    std::vector<std::pair<int64_t, Reply>> made;
    {
      const MutexLock lock(mutex);
      if (ending) break;
      made.swap(replies);
    }
    for (auto& [number, one] : made) {
      for (Connection& c : connections) {
        if (c.number != number || c.phase != Connection::Phase::answering) continue;  // too late
        reply(c, std::move(one));
        break;
      }
    }
    close_late();
    const bool open = may_accept();
    int wait_ms = -1;
    std::vector<pollfd> polls{{wake.get(), POLLIN, 0}, {open ? listener.get() : -1, POLLIN, 0}};
    const auto wait_for = [&](const TimeLimit& limit) {
      const int ms = limit.milliseconds_left();
      wait_ms = wait_ms < 0 ? ms : std::min(wait_ms, ms);
    };
    if (!open) wait_for(interval);
    for (const Connection& c : connections) {
      const bool idle = c.phase == Connection::Phase::answering;
      polls.push_back({idle ? -1 : c.socket.get(), c.awaited(), 0});
      wait_for(c.limit);
    }
    if (::poll(polls.data(), polls.size(), wait_ms) > 0) {
      eventfd_t count = 0;
      if (polls[0].revents != 0) ::eventfd_read(wake.get(), &count);
      for (size_t i = 0; i < connections.size(); ++i) {
        if (polls[i + 2].revents == 0) continue;
        if (connections[i].phase == Connection::Phase::writing) {
          write(connections[i]);
        } else {
          read(connections[i]);
        }
      }
      if (polls[1].revents != 0) accept_some();
    }
    std::this_thread::sleep_for(kPause);
  }
  connections.clear();
  listener.close();
}

// Removes what has ended, and what has not done its part in time.
void WebServer::State::close_late() {
  for (Connection& c : connections) {
    if (c.phase == Connection::Phase::answering && c.limit.reached()) give_up(c);
  }
  std::erase_if(connections, [](const Connection& c) { return !c.socket || c.limit.reached(); });
}

// The thread that computes the answer cannot be stopped. Its answer will be dropped.
void WebServer::State::give_up(Connection& c) {
  {
    const MutexLock lock(mutex);
    std::erase_if(questions, [&](const Question& one) { return one.number == c.number; });
  }
  const nlohmann::json json{{"error", "[dashboard] " + c.head.path + " was not answered in time"},
                            {"hint", "a disk may hang; try again later"}};
  reply(c, reply_of(503, "application/json",
                    json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

bool WebServer::State::may_accept() {
  if (interval.reached()) {
    interval = TimeLimit(kAcceptSeconds);
    accepted = 0;
  }
  return accepted < kMostAccepted;
}

void WebServer::State::accept_some() {
  while (accepted < kMostAccepted) {
    Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Without descriptors the connection stays in the queue, and poll() would return at once.
      if (errno != EAGAIN && errno != EWOULDBLOCK) accepted = kMostAccepted;
      return;
    }
    ++accepted;
    if (!is_spare(socket.get())) continue;
    make_room();
    std::erase_if(connections, [](const Connection& c) { return !c.socket; });
    if (connections.size() + streams.size() >= kMostConnections) continue;
    connections.push_back({.number = ++last_number, .socket = std::move(socket)});
    read(connections.back());  // most requests are there already
  }
}

// Closes the connection that has waited longest for a request, if there are too many.
void WebServer::State::make_room() {
  std::erase_if(connections, [](const Connection& c) { return !c.socket; });
  if (connections.size() + streams.size() < kMostConnections) return;
  for (const auto phase : {Connection::Phase::lingering, Connection::Phase::head}) {
    for (Connection& c : connections) {  // the oldest comes first
      if (c.phase != phase) continue;
      c.socket.close();
      return;
    }
  }
}

void WebServer::State::read(Connection& c) {
  char chunk[16384];
  while (c.socket) {
    const bool lingering = c.phase == Connection::Phase::lingering;
    const ssize_t got = ::recv(c.socket.get(), chunk, sizeof chunk, 0);
    if (got < 0 && would_block()) return;
    if (got <= 0) return c.socket.close();
    if (lingering) {
      c.done += static_cast<size_t>(got);
      if (c.done > kMostLingering) c.socket.close();
      continue;
    }
    const size_t before = c.text.size();
    c.text.append(chunk, static_cast<size_t>(got));
    if (c.phase == Connection::Phase::head) {
      const size_t end = c.text.find("\r\n\r\n", before < 3 ? 0 : before - 3);
      if (end != std::string::npos && end + 4 <= kMostHead) {
        judge(c, end + 4);
      } else if (c.text.size() > kMostHead) {
        reply(c, reply_of(431, "text/plain", "The request's head is too large.\n"));
      }
    } else if (c.text.size() >= c.done) {
      judge(c, 0);
    }
    if (c.phase != Connection::Phase::head && c.phase != Connection::Phase::body &&
        c.phase != Connection::Phase::lingering) {
      return;
    }
  }
}

// The answer to a request that the handler does not see.
std::optional<Reply> WebServer::State::own_reply(const Connection& c) const {
  const std::string why = access->refusal(c.head);
  if (!why.empty()) return reply_of(403, "text/plain", why + "\n");
  if (!access->brings_token(c.head)) return std::nullopt;
  return reply_of(302, "", "", {{"Location", "/"}, {"Set-Cookie", access->cookie()}});
}

// `head_size` > 0: the head has arrived; 0: the body has.
void WebServer::State::judge(Connection& c, size_t head_size) {
  try {
    if (head_size > 0) {
      c.head = parse_http_head(std::string_view(c.text).substr(0, head_size));
      c.text.erase(0, head_size);
      if (std::optional<Reply> made = own_reply(c)) return reply(c, std::move(*made));
      if (c.head.method != "GET" && c.head.method != "POST") {
        throw HttpRefusal(405, "GET and POST are served.");
      }
      c.done = c.head.body_size(kMostBody);  // the size that is expected
      c.turn(Connection::Phase::body, kRequestSeconds);
      if (c.text.size() < c.done) return;
    }
    WebRequest request{c.head.method, c.head.path, c.text.substr(0, c.done),
                       std::move(c.head.parameters)};
    c.text.clear();
    c.turn(Connection::Phase::answering, answer_seconds);
    const MutexLock lock(mutex);
    questions.push_back({c.number, std::move(request)});
    asked.notify_one();
  } catch (const HttpRefusal& refused) {
    reply(c, reply_of(refused.status(), "text/plain", std::string(refused.what()) + "\n"));
  }
}

void WebServer::State::reply(Connection& c, Reply made) {
  c.text = std::move(made.text);
  c.events = std::move(made.events);
  c.done = 0;
  c.turn(Connection::Phase::writing, kPatienceSeconds);
  write(c);
}

void WebServer::State::write(Connection& c) {
  while (c.done < c.text.size()) {
    const ssize_t sent = ::send(c.socket.get(), c.text.data() + c.done, c.text.size() - c.done,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && would_block()) return;
    if (sent <= 0) return c.socket.close();
    c.done += static_cast<size_t>(sent);
    c.limit = TimeLimit(kPatienceSeconds);
  }
  c.text.clear();
  if (c.events) {
    streams.add(std::move(c.socket), std::move(c.events));
    return;
  }
  // A socket that is closed with bytes unread would take the response from the browser.
  ::shutdown(c.socket.get(), SHUT_WR);
  c.done = 0;
  c.turn(Connection::Phase::lingering, kLingerSeconds);
}

WebServer::WebServer(int port, Handler handler, int event_interval_ms,
                     std::function<void()> before_events, const WebLimits& limits)
    : state_(std::make_shared<State>(std::move(handler), event_interval_ms,
                                     std::move(before_events), limits)) {
  state_->listen_at(port);
  try {
    state_->door = quiet_thread([state = state_.get()] { state->serve(); });
    for (int i = 0; i < kThreads; ++i) {
      state_->workers.push_back(LimitedThread([state = state_] { state->answer_questions(); }));
    }
  } catch (const Error&) {
    end(*state_);
    throw;
  }
}

WebServer::~WebServer() { end(*state_); }

void WebServer::end(State& s) {
  {
    const MutexLock lock(s.mutex);
    s.ending = true;
    s.asked.notify_all();
    ::eventfd_write(s.wake.get(), 1);
  }
  const TimeLimit limit(kEndSeconds);
  if (s.door.joinable()) s.door.join();
  for (LimitedThread& worker : s.workers) worker.join(limit);
  s.streams.end();
}

int WebServer::port() const { return state_->port; }
std::string WebServer::address() const { return state_->access->address(); }

}  // namespace lockstep
