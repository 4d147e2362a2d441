// The heads of requests that browsers and strangers send to the dashboard.
#include "lockstep/report/dashboard/http_request.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void parse(std::span<const std::byte> bytes) {
  constexpr size_t most = 1 << 16;
  HttpHead head;
  try {
    head = parse_http_head(text_of(bytes));
    if (head.body_size(most) > most) throw InternalError("[fuzz] a body beyond the limit");
  } catch (const HttpRefusal& refusal) {
    // Its answer has the lines that it should have, whatever was asked.
    if (refusal.status() < 400 || refusal.status() > 499) throw InternalError("[fuzz] a status");
    const std::string answer = http_response_head(refusal.status(), "text/plain", 5, {});
    if (!answer.starts_with("HTTP/1.1 ")) throw InternalError("[fuzz] an answer");
    throw;
  }
  head.cookie("lockstep_8000");
  if (!head.path.starts_with('/')) throw InternalError("[fuzz] a path from nowhere");
  for (const auto& [name, value] : head.headers) {
    if (value.find_first_of("\r\n") != std::string::npos || name.empty()) {
      throw InternalError("[fuzz] a header of two lines");
    }
  }
}

std::vector<Bytes> seeds() {
  const std::string host = "Host: 127.0.0.1:8000\r\n", cookie = "Cookie: lockstep_8000=0123\r\n";
  return {bytes_of("GET /?token=0123 HTTP/1.1\r\n" + host + "\r\n"),
          bytes_of("GET /a?a=b%20c&d=+&&e HTTP/1.1\r\n" + host + cookie +
                   "Origin: http://127.0.0.1:8000\r\nAccept-Encoding: gzip\r\n\r\n"),
          bytes_of("POST /a HTTP/1.1\r\n" + host + cookie +
                   "Content-Type: application/json\r\nContent-Length: 8\r\n\r\n"),
          bytes_of("GET /refuse#x HTTP/1.0\r\n" + host + cookie + "Range: bytes=0-1,3-4\r\n\r\n")};
}

}  // namespace lockstep::fuzz
