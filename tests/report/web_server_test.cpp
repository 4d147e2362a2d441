// The dashboard's server and strangers who connect to it without the token.
#include "lockstep/report/dashboard/web_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/limited_thread.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Descriptor connected(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  return socket;
}

bool send_text(const Descriptor& socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// What the server sends until it closes the connection; "(open)" at the end if it does not.
std::string rest_of(const Descriptor& socket, double seconds = 60) {
  std::string text;
  const TimeLimit limit(seconds);
  char chunk[4096];
  while (true) {
    pollfd one{socket.get(), POLLIN, 0};
    if (::poll(&one, 1, limit.milliseconds_left()) != 1) return text + "(open)";
    const ssize_t got = ::recv(socket.get(), chunk, sizeof chunk, 0);
    if (got <= 0) return text;
    text.append(chunk, static_cast<size_t>(got));
  }
}

// Takes what has come.
bool is_open(const Descriptor& socket) {
  char chunk[4096];
  ssize_t got;
  do got = ::recv(socket.get(), chunk, sizeof chunk, MSG_DONTWAIT);
  while (got > 0);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

class Served : public ::testing::Test {
 protected:
  std::atomic<int> asked{0};
  WebServer server{0,
                   [this](const WebRequest& request) {
                     ++asked;
                     if (request.path == "/events") {
                       return WebResponse{.events = [] { return std::string("data: x\n\n"); }};
                     }
                     if (request.path == "/wrong") throw InvalidArgument("so not");
                     return WebResponse{.body = request.method + " " + request.path + " " +
                                                request.parameter("q") + " " + request.body};
                   },
                   20, [] {}};

  std::string head(const std::string& request, const std::string& more = "") const {
    const std::string address = server.address(), port = std::to_string(server.port());
    return request + " HTTP/1.1\r\nHost: 127.0.0.1:" + port + "\r\nCookie: other=1; lockstep_" +
           port + "=" + address.substr(address.find('=') + 1) + "\r\n" + more + "\r\n";
  }
  std::string ask(const std::string& text) const {
    const Descriptor socket = connected(server.port());
    send_text(socket, text);
    return rest_of(socket);
  }
  std::string status(const std::string& text) const { return ask(text).substr(9, 3); }
};

TEST_F(Served, RequestsAndRefusals) {
  EXPECT_TRUE(ask(head("GET /a%20b?q=1+2%26&x")).ends_with("\r\n\r\nGET /a b 1 2& "));
  EXPECT_TRUE(
      ask(head("POST /p", "Content-Length: 4\r\n") + "body+more").ends_with("POST /p  body"));
  EXPECT_EQ(status(head("GET /wrong")), "400");
  EXPECT_EQ(status(head("PUT /p")), "405");
  EXPECT_EQ(status(head("GET http://127.0.0.1/")), "400");
  EXPECT_EQ(status(head("GET /%zz")), "400");
  EXPECT_EQ(status(head("GET /", "Content-Length: x\r\n")), "400");
  EXPECT_EQ(status(head("GET /", "Host: evil.example\r\n")), "400");
  EXPECT_EQ(status(head("GET /", "Cookie: a=b\r\n")), "400");
  EXPECT_EQ(status(head("GET /", "no colon\r\n")), "400");
  EXPECT_EQ(status(std::string("\0\1 garbage\r\n\r\n", 15)), "400");
  EXPECT_EQ(status("\r\n\r\n"), "400");
  EXPECT_EQ(status(head("POST /p", "Content-Length: 70000\r\n")), "413");
  EXPECT_EQ(status(head("POST /p", "Content-Length: 99999999999999999999999\r\n")), "413");
  const int before = asked;
  EXPECT_EQ(
      status("GET / HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n\r\n"),
      "403");
  EXPECT_EQ(asked, before);
}

// A head arrives byte by byte, as from a slow network.
TEST_F(Served, HeadsInChunks) {
  const Descriptor socket = connected(server.port());
  for (const char c : head("GET /slow")) ASSERT_TRUE(send_text(socket, std::string(1, c)));
  EXPECT_TRUE(rest_of(socket).ends_with("GET /slow  "));
}

TEST_F(Served, BodiesWithoutTokenAreNotRead) {
  const Descriptor socket = connected(server.port());
  send_text(socket, "POST /p HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) +
                        "\r\nContent-Length: 60000\r\n\r\n");
  EXPECT_EQ(rest_of(socket).substr(9, 3), "403");
}

// A body in chunks has no length that could be refused.
TEST_F(Served, BodiesWithoutLengthAreRefused) {
  const Descriptor socket = connected(server.port());
  send_text(socket, head("POST /p", "Transfer-Encoding: chunked\r\n"));
  const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
  int sent = 0;
  while (sent < 1000 && send_text(socket, chunk)) ++sent;
  EXPECT_LT(sent, 200);  // what the system's buffers take
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(status(head("POST /p", "Transfer-Encoding: chunked\r\n")), "411");
}

TEST_F(Served, HeadsHaveALimit) {
  EXPECT_EQ(status(head("GET /", "X: " + std::string(40'000, 'x') + "\r\n")), "431");
  const Descriptor socket = connected(server.port());
  const std::string line = "X: " + std::string(1000, 'x') + "\r\n";
  send_text(socket, "GET / HTTP/1.1\r\n");
  int sent = 0;
  while (sent < 100'000 && send_text(socket, line)) ++sent;
  EXPECT_LT(sent, 20'000);
  EXPECT_EQ(status(head("GET /",
                        [] {
                          std::string many;
                          for (int i = 0; i < 200; ++i) many += "X" + std::to_string(i) + ": y\r\n";
                          return many;
                        }())),
            "431");
}

// A head that grows by a byte a second does not keep its connection.
TEST_F(Served, HeadsHaveADeadline) {
  const Descriptor slow = connected(server.port()), silent = connected(server.port()),
                   body = connected(server.port());
  send_text(body, head("POST /p", "Content-Length: 10\r\n") + "12345");
  const auto begin = Clock::now();
  while (seconds_since(begin) < 4) {
    ASSERT_TRUE(send_text(slow, "x"));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  EXPECT_EQ(rest_of(slow), "");
  EXPECT_EQ(rest_of(silent), "");
  EXPECT_EQ(rest_of(body), "");
  EXPECT_EQ(asked, 0);
}

// Who has the token is served at once, however many wait without having asked.
TEST_F(Served, ManySilentConnections) {
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const size_t count = std::min<size_t>(1000, limit.rlim_cur / 2);
  const auto descriptors = [] {
    int number = 0;
    for (int i = 0; i < 4096; ++i) number += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
    return number;
  };
  std::vector<Descriptor> silent;
  const int before = descriptors();
  for (size_t i = 0; i < count; ++i) silent.push_back(connected(server.port()));
  double fastest = 60;  // other programs may hold up the others
  for (int i = 0; i < 20; ++i) {
    const auto begin = Clock::now();
    EXPECT_TRUE(ask(head("GET /x")).ends_with("GET /x  "));
    fastest = std::min(fastest, seconds_since(begin));
  }
  EXPECT_LT(fastest, 2);
  // Those of the test itself are in this process too.
  EXPECT_LE(descriptors() - before - static_cast<int>(count), 66);
}

TEST_F(Served, DescriptorsAreReserved) {
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::vector<Descriptor> mine;  // so that the connections have high numbers
  for (int i = 0; i < 60; ++i) mine.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const struct rlimit low { static_cast<rlim_t>(2 * mine.back().get()), limit.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connected(server.port()));
  for (const Descriptor& one : silent) EXPECT_EQ(rest_of(one, 4), "");  // before heads are late
  mine.clear();
  silent.clear();
  EXPECT_TRUE(ask(head("GET /x")).ends_with("GET /x  "));
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(Served, StreamsAreCountedToo) {
  std::vector<Descriptor> streams;
  for (int i = 0; i < 60; ++i) {
    streams.push_back(connected(server.port()));
    send_text(streams.back(), head("GET /events"));
  }
  size_t open = streams.size();
  for (const TimeLimit limit(60); open > 48 && !limit.reached();) {
    open = 0;
    for (const Descriptor& one : streams) open += is_open(one) ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(open, 48u);
  EXPECT_TRUE(ask(head("GET /x")).ends_with("GET /x  "));
}

// Handlers share what they use, so the end does not wait for one that a disk holds up.
TEST(WebServerEnd, WaitsForNobody) {
  const auto shared = std::make_shared<std::atomic<bool>>(false);
  const auto hang = [shared] {
    while (!*shared) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  auto server = std::make_unique<WebServer>(
      0,
      [hang](const WebRequest& request) {
        if (request.path == "/hang") hang();
        if (request.path == "/events") {
          return WebResponse{.events = [hang] {
            hang();
            return std::string();
          }};
        }
        return WebResponse{.body = std::string(size_t{64} << 20, 'x')};
      },
      20, [] {});
  const std::string address = server->address(), port = std::to_string(server->port());
  const auto head = [&](const std::string& path) {
    return "GET " + path + " HTTP/1.1\r\nHost: localhost:" + port + "\r\nCookie: lockstep_" + port +
           "=" + address.substr(address.find('=') + 1) + "\r\n\r\n";
  };
  std::vector<Descriptor> open;
  for (const char* text : {"", "GET", "/hang", "/events", "/large"}) {
    open.push_back(connected(server->port()));
    send_text(open.back(), *text == '/' ? head(text) : text);
  }
  for (size_t i : {size_t{3}, size_t{4}}) {  // the answers have begun
    pollfd one{open[i].get(), POLLIN, 0};
    ASSERT_EQ(::poll(&one, 1, 60'000), 1);
  }
  const auto begin = Clock::now();
  server.reset();
  EXPECT_LT(seconds_since(begin), 20);  // it would be without end
  for (size_t i : {size_t{0}, size_t{1}, size_t{2}}) EXPECT_EQ(rest_of(open[i]), "");
  // The end of the program does, with a limit.
  EXPECT_FALSE(wait_for_left_threads(TimeLimit(0.1)));
  *shared = true;
  EXPECT_TRUE(wait_for_left_threads(TimeLimit(60)));
}

TEST(WebServerEnd, IsAtOnceWithoutHandlers) {
  double fastest = 60;  // other programs may hold up the others
  for (int i = 0; i < 20; ++i) {
    WebServer server(
        0, [](const WebRequest&) { return WebResponse{}; }, 1000, [] {});
    const Descriptor open = connected(server.port());
    const auto begin = Clock::now();
    {
      const WebServer another(
          0, [](const WebRequest&) { return WebResponse{}; }, 1000, [] {});
    }
    fastest = std::min(fastest, seconds_since(begin));
  }
  EXPECT_LT(fastest, 0.5);
}

// A disk that hangs keeps the threads, but no connection.
TEST(WebServerLimits, AnswersHaveADeadline) {
  const auto shared = std::make_shared<std::atomic<bool>>(false);
  const auto asked = std::make_shared<std::atomic<int>>(0);
  WebServer server(
      0,
      [shared, asked](const WebRequest& request) {
        if (request.path == "/hang") ++*asked;
        while (request.path == "/hang" && !*shared) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        return WebResponse{.body = "done"};
      },
      20, [] {}, {.answer = 0.5});
  const std::string address = server.address(), port = std::to_string(server.port());
  const auto begun = [&](const std::string& path) {
    Descriptor socket = connected(server.port());
    send_text(socket, "GET " + path + " HTTP/1.1\r\nHost: localhost:" + port +
                          "\r\nCookie: lockstep_" + port + "=" +
                          address.substr(address.find('=') + 1) + "\r\n\r\n");
    return socket;
  };
  std::vector<Descriptor> all;
  for (int i = 0; i < 10; ++i) all.push_back(begun("/hang"));
  for (const Descriptor& one : all) {
    const std::string said = rest_of(one);
    EXPECT_TRUE(said.starts_with("HTTP/1.1 503 ")) << said;
    EXPECT_TRUE(said.ends_with("}")) << said;
  }
  *shared = true;
  // What nobody waits for is not computed when the disk answers again.
  for (const TimeLimit limit(60); !limit.reached();) {
    if (rest_of(begun("/x")).ends_with("done")) break;
  }
  EXPECT_TRUE(rest_of(begun("/x")).ends_with("done"));
  EXPECT_LE(*asked, 4);  // one for each thread
}

}  // namespace
}  // namespace lockstep
