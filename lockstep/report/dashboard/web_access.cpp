#include "lockstep/report/dashboard/web_access.h"

#include <sys/random.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

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

}  // namespace

WebAccess::WebAccess(int port) : port_(port), token_(random_token()) {}

std::string WebAccess::address() const {
  return "http://127.0.0.1:" + std::to_string(port_) + "/?token=" + token_;
}

std::string WebAccess::cookie_name() const { return "lockstep_" + std::to_string(port_); }

bool WebAccess::is_here(std::string_view host) const {
  const std::string at = ":" + std::to_string(port_);
  return host == "127.0.0.1" + at || host == "localhost" + at || host == "[::1]" + at;
}

std::string WebAccess::refusal(const HttpHead& head) const {
  const std::string origin = head.header("origin");
  constexpr std::string_view scheme = "http://";
  if (!is_here(head.header("host"))) return "This is not the name of this server.";
  if (head.headers.contains("origin") &&
      (!origin.starts_with(scheme) || !is_here(std::string_view(origin).substr(scheme.size())))) {
    return "Other pages may not use this server.";
  }
  if (brings_token(head) || same_secret(head.cookie(cookie_name()), token_)) return {};
  return "Use the address that `lockstep dashboard` has printed, with its token.";
}

bool WebAccess::brings_token(const HttpHead& head) const {
  const auto given = head.parameters.find("token");
  return head.path == "/" && head.method == "GET" && given != head.parameters.end() &&
         same_secret(given->second, token_);
}

std::string WebAccess::cookie() const {
  return cookie_name() + "=" + token_ + "; Path=/; HttpOnly; SameSite=Strict";
}

}  // namespace lockstep
