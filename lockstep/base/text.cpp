#include "lockstep/base/text.h"

#include <cstdint>

namespace lockstep {
namespace {

// The number of bytes of the character at `at`; 0 if no valid character begins there.
size_t character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() - at < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;  // overlong
  if (first == 0xed && byte(1) > 0x9f) return 0;  // surrogates
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return bytes;
}

void append_escaped(std::string& to, char c) {
  constexpr char digits[] = "0123456789abcdef";
  if (c == '\n' || c == '\t' || c == '\r') {
    to += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    return;
  }
  const auto byte = static_cast<unsigned char>(c);
  to += "\\x";
  to += digits[byte >> 4];
  to += digits[byte & 15];
}

std::string escaped(std::string_view text, bool lines) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_at(text, at);
    const auto c = static_cast<unsigned char>(text[at]);
    const bool kept_line = lines && c == '\n' && text.substr(at + 1, 2) == "  ";
    const bool control =
        (bytes == 1 && (c < 0x20 || c == 0x7f) && !kept_line) ||
        (bytes == 2 && c == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0);
    if (bytes > 0 && !control) {
      out.append(text, at, bytes);
      at += bytes;
      continue;
    }
    const size_t end = at + (bytes > 0 ? bytes : 1);
    for (; at < end; ++at) append_escaped(out, text[at]);
  }
  return out;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_at(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_lines(std::string_view text) { return escaped(text, true); }

std::string list_of_some(const std::vector<std::string>& items, size_t most) {
  std::string text;
  for (size_t i = 0; i < items.size() && i < most; ++i) text += (i > 0 ? ", " : "") + items[i];
  if (items.size() > most) text += " and " + std::to_string(items.size() - most) + " more";
  return text;
}

std::string list_of_some_names(const std::vector<std::string>& names, size_t most) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back("`" + printable(name) + "`");
  return list_of_some(quoted, most);
}

}  // namespace lockstep
