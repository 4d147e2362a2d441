// What browsers and strangers send to the dashboard's server.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/report/dashboard/web_server.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

constexpr int kLimitMs = 20'000;  // for an answer

WebServer& server() {
  static WebServer server(
      0,
      [](const WebRequest& request) {
        if (request.path == "/refuse") throw InvalidArgument("[fuzz] refused", "hint");
        return WebResponse{.body = "granted " + request.parameter("a") +
                                   std::to_string(request.body.size())};
      },
      1000, [] {});
  return server;
}

std::string token() {
  const std::string address = server().address();
  return address.substr(address.find("token=") + 6);
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

// Sends it all, says that nothing follows, and reads all that comes.
std::string answer_to(const std::string& text) {
  const Descriptor connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(server().port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    throw InternalError("[fuzz] the server takes no connection");
  }
  ::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL);
  ::shutdown(connection.get(), SHUT_WR);
  std::string answer;
  for (;;) {
    pollfd waiting{connection.get(), POLLIN, 0};
    if (::poll(&waiting, 1, kLimitMs) != 1) throw InternalError("[fuzz] no answer and no end");
    char piece[4096];
    const ssize_t count = ::recv(connection.get(), piece, sizeof piece, 0);
    if (count <= 0) return answer;  // a reset ends it, too
    answer.append(piece, static_cast<size_t>(count));
  }
}

}  // namespace

// TOKEN and PORT stand for those of the server, which are others in each process.
void parse(std::span<const std::byte> bytes) {
  std::string request = text_of(bytes);
  replace_all(request, "PORT", std::to_string(server().port()));
  replace_all(request, "TOKEN", token());
  const std::string answer = answer_to(request);
  if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) {
    throw InternalError("[fuzz] an answer that is none");
  }
  const bool granted =
      answer.find("granted") != std::string::npos || answer.find("Set-Cookie") != std::string::npos;
  if (granted && request.find(token()) == std::string::npos) {
    throw InternalError("[fuzz] a request without the token is served");
  }
}

std::vector<Bytes> seeds() {
  const std::string host = "Host: 127.0.0.1:PORT\r\n", cookie = "Cookie: lockstep_PORT=TOKEN\r\n";
  return {
      bytes_of("GET /?token=TOKEN HTTP/1.1\r\n" + host + "\r\n"),
      bytes_of("GET /a?a=b%20c&d=%zz HTTP/1.1\r\n" + host + cookie +
               "Origin: http://127.0.0.1:PORT\r\nAccept-Encoding: gzip\r\n\r\n"),
      bytes_of("POST /a HTTP/1.1\r\n" + host + cookie +
               "Content-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"a\": 1}"),
      bytes_of("POST /a HTTP/1.1\r\n" + host + cookie +
               "Transfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n2\r\n:1\r\n0\r\n\r\n"),
      bytes_of("POST /a HTTP/1.1\r\n" + host + cookie +
               "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 60\r\n\r\n--x\r\n"
               "Content-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n"),
      bytes_of("GET /refuse HTTP/1.1\r\n" + host + cookie + "Range: bytes=0-1,3-4\r\n\r\n"),
      bytes_of("GET / HTTP/1.1\r\nHost: evil\r\n\r\n")};
}

}  // namespace lockstep::fuzz
