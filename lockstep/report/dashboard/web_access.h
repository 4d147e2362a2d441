// Who may ask the dashboard's server.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/report/dashboard/http_request.h"

namespace lockstep {

// Decides by the head of a request. Thread-safe after the construction.
class WebAccess {
 public:
  // Makes a token. Throws Error if the system gives no random numbers.
  explicit WebAccess(int port);

  // "http://127.0.0.1:8123/?token=...", the first page. The token is random, 128 bits.
  std::string address() const;
  // Why a request is refused; "" if it is not. Its Host must be this server, its Origin, if it has
  // one, too (against DNS rebinding, and requests of other pages), and it must carry
  // the token: as a cookie, or by bringing it.
  std::string refusal(const HttpHead& head) const;
  // Whether it asks for the first page with the token as a parameter. The answer sets the cookie.
  bool brings_token(const HttpHead& head) const;
  // For the header Set-Cookie.
  std::string cookie() const;

 private:
  std::string cookie_name() const;
  bool is_here(std::string_view host) const;

  const int port_;
  const std::string token_;
};

}  // namespace lockstep
