#include "lockstep/report/dashboard/web_server.h"

// Debian's cpp-httplib is compiled with these, and the layout of its classes depends on them.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#define CPPHTTPLIB_BROTLI_SUPPORT
#include <fcntl.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int kThreads = 4;
constexpr int kPatienceMs = 5000;  // for a browser that sends or reads nothing
constexpr size_t kMostBody = size_t{1} << 16;

std::string random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    throw Error("[dashboard] the system gives no random numbers");
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// The time does not depend on where the texts differ.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

// The value of a cookie, or "".
std::string cookie(const httplib::Request& request, const std::string& name) {
  const std::string all = "; " + request.get_header_value("Cookie") + ";";
  const size_t at = all.find("; " + name + "=");
  if (at == std::string::npos) return {};
  const size_t begin = at + name.size() + 3;
  return all.substr(begin, all.find(';', begin) - begin);
}

class SocketStream final : public httplib::Stream {
 public:
  explicit SocketStream(int socket) : socket_(socket) {}
  bool is_readable() const override { return wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }
  ssize_t read(char* to, size_t size) override {
    return is_readable() ? ::recv(socket_, to, size, 0) : -1;
  }
  ssize_t write(const char* from, size_t size) override {
    return is_writable() ? ::send(socket_, from, size, MSG_NOSIGNAL) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = "127.0.0.1";
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    get_remote_ip_and_port(ip, port);
  }
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short what) const {
    pollfd poll{socket_, what, 0};
    return ::poll(&poll, 1, kPatienceMs) == 1;
  }
  const int socket_;
};

// Set by the handler of a request whose connection becomes a stream of events.
thread_local EventSource stream_to_be;

// Serves one request for each connection, so that idle connections do not occupy its threads, and
// hands connections that become streams over.
class Server final : public httplib::Server {
 public:
  explicit Server(EventStreams& streams) : streams_(streams) {}

 private:
  bool process_and_close_socket(socket_t socket) override {
    ::fcntl(socket, F_SETFD, FD_CLOEXEC);  // not for worker processes
    SocketStream stream(socket);
    bool closed = false;
    stream_to_be = nullptr;
    const bool done = process_request(stream, true, closed, [](httplib::Request&) {});
    EventSource source = std::move(stream_to_be);
    stream_to_be = nullptr;
    if (done && source) return streams_.add(socket, std::move(source));
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return done;
  }
  EventStreams& streams_;
};

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: "
    "blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

struct WebServer::State {
  State(Handler h, int interval, std::function<void()> before)
      : handler(std::move(h)), streams(interval, std::move(before)), server(streams) {}

  const std::string token = random_token();
  Handler handler;
  int port = 0;
  EventStreams streams;
  Server server;
  std::thread thread;

  std::string cookie_name() const { return "lockstep_" + std::to_string(port); }
  bool is_here(const std::string& host) const {
    const std::string at = ":" + std::to_string(port);
    return host == "127.0.0.1" + at || host == "localhost" + at || host == "[::1]" + at;
  }
  static void refuse(httplib::Response& response, const char* why) {
    response.status = 403;
    response.set_content(std::string(why) + "\n", "text/plain");
  }
  httplib::Server::HandlerResponse guard(const httplib::Request& request,
                                         httplib::Response& response);
  void answer(const httplib::Request& request, httplib::Response& response);
};

// Refuses requests of other pages and of those without the token.
httplib::Server::HandlerResponse WebServer::State::guard(const httplib::Request& request,
                                                         httplib::Response& response) {
  constexpr auto handled = httplib::Server::HandlerResponse::Handled;
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("Cache-Control", "no-store");
  response.set_header("Cross-Origin-Resource-Policy", "same-origin");
  const std::string origin = request.get_header_value("Origin");
  constexpr std::string_view scheme = "http://";
  if (!is_here(request.get_header_value("Host"))) {
    refuse(response, "This is not the name of this server.");
  } else if (request.has_header("Origin") &&
             (!origin.starts_with(scheme) || !is_here(origin.substr(scheme.size())))) {
    refuse(response, "Other pages may not use this server.");
  } else if (request.path == "/" && request.method == "GET" && request.has_param("token") &&
             same_secret(request.get_param_value("token"), token)) {
    response.set_header("Set-Cookie",
                        cookie_name() + "=" + token + "; Path=/; HttpOnly; SameSite=Strict");
    response.set_redirect("/");
  } else if (!same_secret(cookie(request, cookie_name()), token)) {
    refuse(response, "Use the address that `lockstep dashboard` has printed, with its token.");
  } else {
    return httplib::Server::HandlerResponse::Unhandled;
  }
  return handled;
}

void WebServer::State::answer(const httplib::Request& request, httplib::Response& response) {
  WebRequest asked{request.method, request.path, request.body, {}};
  for (const auto& [name, value] : request.params) asked.parameters.emplace(name, value);
  WebResponse made;
  const auto failed = [&](int status, const char* why) {
    made = {.status = status};
    made.body = nlohmann::json{{"error", why}}.dump(-1, ' ', false,
                                                    nlohmann::json::error_handler_t::replace);
  };
  try {
    made = handler(asked);
  } catch (const Error& e) {
    failed(400, e.what());
  } catch (const std::exception& e) {
    failed(500, e.what());
  }
  response.status = made.status;
  if (!made.own_policy) response.set_header("Content-Security-Policy", kPolicy);
  if (!made.events) {
    response.set_content(made.body, made.type.c_str());
    return;
  }
  response.set_content_provider("text/event-stream", [](size_t, httplib::DataSink& sink) {
    constexpr std::string_view first = "retry: 1000\n\n";
    sink.write(first.data(), first.size());
    sink.done();
    return true;
  });
  stream_to_be = std::move(made.events);
}

WebServer::WebServer(int port, Handler handler, int event_interval_ms,
                     std::function<void()> before_events)
    : state_(std::make_unique<State>(std::move(handler), event_interval_ms,
                                     std::move(before_events))) {
  State& s = *state_;
  s.server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  s.server.set_payload_max_length(kMostBody);
  s.server.set_socket_options([](socket_t socket) {
    const int yes = 1;  // without SO_REUSEPORT, by which another process could share the port
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  s.server.set_pre_routing_handler(
      [&s](const httplib::Request& request, httplib::Response& response) {
        return s.guard(request, response);
      });
  const auto answer = [&s](const httplib::Request& request, httplib::Response& response) {
    s.answer(request, response);
  };
  s.server.Get("/.*", answer);
  s.server.Post("/.*", answer);
  s.port = port;
  const bool bound = port == 0 ? (s.port = s.server.bind_to_any_port("127.0.0.1")) > 0
                               : s.server.bind_to_port("127.0.0.1", port);
  if (!bound) {
    throw Error("[dashboard] port " + std::to_string(port) + " cannot be used",
                "another program may use it; choose another --port, or 0 for any free one");
  }
  s.thread = std::thread([&s] { s.server.listen_after_bind(); });
}

WebServer::~WebServer() {
  // stop() has no effect before the thread listens.
  for (int i = 0; i < 500 && !state_->server.is_running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  state_->server.stop();
  if (state_->thread.joinable()) state_->thread.join();
}

int WebServer::port() const { return state_->port; }
std::string WebServer::address() const {
  return "http://127.0.0.1:" + std::to_string(state_->port) + "/?token=" + state_->token;
}

}  // namespace lockstep
