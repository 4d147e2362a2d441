#include "lockstep/report/dashboard/http_request.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace lockstep {
namespace {

constexpr size_t kMostHeaders = 100;
// Some readers end a line at each of these alone, so a header could hide another one.
constexpr std::string_view kLineEnds("\r\n\0", 3);

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127; });
}

// The letters and digits of names of methods and headers.
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string decoded(std::string_view text, bool plus_is_blank) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_blank) {
      result += ' ';
    } else if (text[i] == '%') {
      unsigned byte = 0;
      const char* const begin = text.data() + std::min(i + 1, text.size());
      const char* const end = text.data() + std::min(i + 3, text.size());
      const auto [stop, error] = std::from_chars(begin, end, byte, 16);
      if (error != std::errc() || stop - begin != 2)
        throw HttpRefusal(400, "The address is wrong.");
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

void read_target(std::string_view target, HttpHead& head) {
  if (!target.starts_with('/')) throw HttpRefusal(400, "The address is wrong.");
  target = target.substr(0, target.find('#'));
  const size_t question = std::min(target.find('?'), target.size());
  head.path = decoded(target.substr(0, question), false);
  for (size_t begin = question + 1; begin < target.size();) {
    const size_t end = std::min(target.find('&', begin), target.size());
    const std::string_view one = target.substr(begin, end - begin);
    begin = end + 1;
    if (one.empty()) continue;
    const size_t equals = std::min(one.find('='), one.size());
    head.parameters.emplace(decoded(one.substr(0, equals), true),
                            decoded(one.substr(std::min(equals + 1, one.size())), true));
  }
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 302:
      return "Found";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

std::string HttpHead::cookie(const std::string& name) const {
  const std::string all = "; " + header("cookie") + ";";
  const size_t at = all.find("; " + name + "=");
  if (at == std::string::npos) return {};
  const size_t begin = at + name.size() + 3;
  return all.substr(begin, all.find(';', begin) - begin);
}

size_t HttpHead::body_size(size_t most) const {
  if (headers.contains("transfer-encoding")) {
    throw HttpRefusal(411, "A request must announce its length.");
  }
  const auto found = headers.find("content-length");
  if (found == headers.end()) return 0;
  const std::string& text = found->second;
  uint64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    throw HttpRefusal(400, "The length of the request is not a number.");
  }
  if (error != std::errc() || size > most) {
    throw HttpRefusal(413, "A request may have " + std::to_string(most) + " bytes.");
  }
  return size;
}

HttpHead parse_http_head(std::string_view text) {
  const auto bad = [] { return HttpRefusal(400, "This is not a request of HTTP."); };
  HttpHead head;
  bool first = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find("\r\n", begin);
    if (end == std::string_view::npos) throw bad();
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 2;
    if (line.empty() && !first) break;
    if (first) {
      const size_t one = line.find(' '), two = line.rfind(' ');
      if (one == std::string_view::npos || one == two || !is_token(line.substr(0, one)) ||
          !line.substr(two + 1).starts_with("HTTP/1.") || !is_printable(line)) {
        throw bad();
      }
      head.method = line.substr(0, one);
      read_target(line.substr(one + 1, two - one - 1), head);
      first = false;
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) throw bad();
    if (line.find_first_of(kLineEnds) != std::string_view::npos) throw bad();
    std::string name(line.substr(0, colon));
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool fresh = head.headers.emplace(name, trimmed(line.substr(colon + 1))).second;
    // Two of these would be two answers to the question who asks for what.
    if (!fresh && (name == "host" || name == "origin" || name == "content-length" ||
                   name == "cookie" || name == "transfer-encoding")) {
      throw HttpRefusal(400, "The request has " + name + " twice.");
    }
    if (head.headers.size() > kMostHeaders) {
      throw HttpRefusal(431, "The request has too many headers.");
    }
  }
  if (first) throw bad();
  return head;
}

std::string http_response_head(int status, const std::string& type, int64_t size,
                               const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string text = "HTTP/1.1 " + std::to_string(status) + " " + reason_of(status) + "\r\n";
  if (!type.empty()) text += "Content-Type: " + type + "\r\n";
  if (size >= 0) text += "Content-Length: " + std::to_string(size) + "\r\n";
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  return text + "Connection: close\r\n\r\n";
}

}  // namespace lockstep
