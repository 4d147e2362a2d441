// HTTP requests over connections that stay open (libcurl's multi interface, HTTP/1.1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/storage/signature.h"

namespace lockstep::storage {

class AfterStop;

// Bytes of an answer's body that a request accepts if it expects a short document.
inline constexpr uint64_t usual_answer = uint64_t{1} << 20;

struct HttpRequest {
  std::string method = "GET", url = {};
  Pairs headers = {};
  std::string body = {};
  double seconds = 300;   // limit of the whole request
  bool use_proxy = true;  // false: never through the proxy that the environment names
  // Of the body of an answer with a status of success; of others it is usual_answer at least.
  uint64_t most_bytes = usual_answer;
};

// An answer, or why there is none.
struct HttpAnswer {
  long status = 0;    // 0: no complete answer
  std::string error;  // if there is none; contains neither headers nor the query
  Pairs headers;      // names in lower case
  std::string body;

  // The value of a header; "" if it is missing.
  std::string header(std::string_view name) const;
};

// The most requests that one call of send_all() has open at a time.
inline constexpr int max_connections = 16;

// Sends all requests, up to max_connections at a time, and returns their answers in order. Does not
// follow redirects. Connections are kept for later calls. A request without progress for 20 seconds
// ends, as does one whose answer has more bytes than it accepts, or more headers than any store
// sends. After a stop request, all end when `after_stop` is out of time (see network_wait.h).
// Thread-safe; throws InternalError if libcurl cannot work at all.
std::vector<HttpAnswer> send_all(const std::vector<HttpRequest>& requests,
                                 const AfterStop& after_stop);
HttpAnswer send(const HttpRequest& request);

}  // namespace lockstep::storage
