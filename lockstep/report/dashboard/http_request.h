// The head of an HTTP request, as browsers send it, and the text of a response.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

// A request that is refused before anybody has seen it. Its message is for the browser.
class HttpRefusal : public InvalidArgument {
 public:
  HttpRefusal(int status, const std::string& why) : InvalidArgument(why), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

struct HttpHead {
  std::string method;
  std::string path;                               // decoded, without the query
  std::map<std::string, std::string> parameters;  // of the query, decoded; the first of each name
  std::map<std::string, std::string> headers;     // names in lower case

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  // The value of a cookie, or "".
  std::string cookie(const std::string& name) const;
  // Bytes that follow the head. Throws HttpRefusal for more than `most`, and for a body whose
  // length is not announced.
  size_t body_size(size_t most) const;
};

// The text up to and with the empty line. Throws HttpRefusal.
HttpHead parse_http_head(std::string_view text);

// The head of a response after which the connection is closed. `size` < 0: the body ends with the
// connection.
std::string http_response_head(int status, const std::string& type, int64_t size,
                               const std::vector<std::pair<std::string, std::string>>& headers);

}  // namespace lockstep
