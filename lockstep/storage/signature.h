// AWS Signature Version 4 of HTTP requests.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::storage {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Keys of an account. `expires` is a time in seconds since 1970, or 0 for keys without an end.
// Without `access_key`, requests are not signed.
struct Credentials {
  std::string access_key = {}, secret_key = {}, session_token = {};
  std::time_t expires = 0;
};

// What is signed. `path` and `query` are as they are meant, without percent-encoding.
struct SignedRequest {
  std::string method, host, path;  // host with its port, if that is not the scheme's own
  Pairs query = {};
  Pairs headers = {};  // in addition to those that sign() makes; names in lower case
  std::string payload_digest = {};
};

// Everything but letters, digits and "-._~" becomes %XX; with `keep_slash`, '/' stays.
std::string percent_encoded(std::string_view text, bool keep_slash);
// Inverse, also of '+' for a blank. Invalid sequences stay as they are.
std::string percent_decoded(std::string_view text);
// The query, encoded and sorted, without '?'.
std::string encoded_query(const Pairs& query);

// SHA-256 in hexadecimal digits. Throws InternalError if OpenSSL fails.
std::string sha256(std::string_view bytes);
// The same as 32 bytes.
std::string sha256_bytes(std::string_view bytes);
// MD5 in bytes, for comparison with what stores report.
std::string md5(std::string_view bytes);
std::string base64(std::string_view bytes);
std::string hexadecimal(std::string_view bytes);

// Returns the headers to send in addition to those of the request: x-amz-date,
// x-amz-content-sha256, x-amz-security-token, authorization. Thread-safe.
Pairs sign(const SignedRequest& request, const Credentials& credentials, const std::string& region,
           const std::string& service, std::time_t now);

}  // namespace lockstep::storage
