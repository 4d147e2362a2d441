#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/text/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kUnknownToken = "<unknown>";
constexpr std::array kUnitNames{"bytes", "characters", "words"};
constexpr const char* kTokenHint =
    "a vocabulary with a token for unknown ones takes any text (unknown)";

bool is_text_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Bytes of the first character of valid UTF-8.
size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// Bytes of the first word; `text` begins with one.
size_t word_bytes(std::string_view text) {
  if (text.front() == '\n' || is_punctuation(text.front())) return 1;
  size_t end = 1;
  while (end < text.size() && !is_text_space(text[end]) && !is_punctuation(text[end])) ++end;
  return end;
}

// Calls function(token, its first byte in `text`) for each token of valid UTF-8.
template <class Function>
void for_each_token(std::string_view text, TextUnits units, Function function) {
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (units == TextUnits::words && is_text_space(rest.front()) && rest.front() != '\n') {
      ++at;
      continue;
    }
    const size_t bytes = units == TextUnits::words        ? word_bytes(rest)
                         : units == TextUnits::characters ? character_bytes(rest)
                                                          : 1;
    function(rest.substr(0, bytes), at);
    at += bytes;
  }
}

// "notes.txt line 3, column 7"; columns count characters.
std::string position_in(std::string_view text, size_t byte, const std::string& where,
                        int64_t first_line) {
  const std::string_view before = text.substr(0, byte);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t begin = lines == 0 ? 0 : before.rfind('\n') + 1;
  int64_t column = 1;
  for (const char c : before.substr(begin)) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++column;
  }
  return where + " line " + std::to_string(lines + first_line) + ", column " +
         std::to_string(column);
}

void check_text(std::string_view text, TextUnits units, const std::string& where,
                int64_t first_line) {
  if (units == TextUnits::bytes || is_utf8(text)) return;
  // The longest valid part ends where the first wrong character begins.
  size_t low = 0, high = text.size();
  const auto valid = [&](size_t end) {
    while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;
    }
    return is_utf8(text.substr(0, end));
  };
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    (valid(middle) ? low : high) = middle;
  }
  throw DataError(
      "[vocabulary] " + position_in(text, low, where, first_line) + ": the text is not UTF-8",
      "save it as UTF-8, or use bytes");
}

std::string shown_token(std::string_view token) { return "`" + printable(token) + "`"; }

// A whole number as std::to_string() writes it.
bool is_plain_number(std::string_view token) {
  const bool digits = std::ranges::all_of(token, [](char c) { return c >= '0' && c <= '9'; });
  return digits && (token.size() == 1 || token.front() != '0');
}

bool are_numbers(const std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != std::to_string(i)) return false;
  }
  return true;
}

}  // namespace

std::string_view name_of(TextUnits units) { return kUnitNames.at(static_cast<size_t>(units)); }

Vocabulary::Vocabulary() {
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 8> text{};
    if (byte >= ' ' && byte <= '~') {
      text[0] = static_cast<char>(byte);
    } else {
      std::snprintf(text.data(), text.size(), "\\x%02x", static_cast<unsigned>(byte));
    }
    tokens_.emplace_back(text.data());
  }
}

Vocabulary Vocabulary::of(std::vector<std::string> tokens, TextUnits units, bool unknown) {
  const auto refuse = [](const std::string& what) {
    throw InvalidArgument("[vocabulary] " + what);
  };
  if (units == TextUnits::bytes) refuse("a vocabulary of bytes has its own 256 tokens");
  if (tokens.empty()) refuse("there are no tokens");
  if (unknown && tokens[0] != kUnknownToken) {
    refuse("token 0 is " + shown_token(tokens[0]) + ", but stands for unknown ones as " +
           std::string(kUnknownToken));
  }
  Vocabulary made;
  made.units_ = units;
  made.unknown_ = unknown;
  made.tokens_ = std::move(tokens);
  for (size_t i = unknown ? 1 : 0; i < made.tokens_.size(); ++i) {
    const std::string& token = made.tokens_[i];
    const std::string named = "token " + std::to_string(i) + ", " + shown_token(token) + ",";
    if (!is_utf8(token)) refuse(named + " is not UTF-8");
    std::vector<std::string_view> parts;
    for_each_token(token, units, [&](std::string_view part, size_t) { parts.push_back(part); });
    if (parts.size() != 1 || parts[0] != token) {
      refuse(named + " is not one of " + std::string(name_of(units)));
    }
    if (!made.numbers_.emplace(token, static_cast<int32_t>(i)).second) {
      refuse(named + " is there twice");
    }
  }
  made.of_numbers_ = units == TextUnits::words && !unknown && are_numbers(made.tokens_);
  return made;
}

Vocabulary Vocabulary::learn(std::span<const std::string_view> texts,
                             const VocabularyOptions& options) {
  const auto refuse = [](const std::string& what, const std::string& hint) {
    throw InvalidArgument("[vocabulary] " + what, hint);
  };
  if (options.units == TextUnits::bytes) return {};
  if (options.most < 0 || options.least_count < 1) {
    refuse("at most " + std::to_string(options.most) + " tokens that occur at least " +
               counted(options.least_count, "time") + " are not possible",
           "a limit of 0 is none, and each token occurs at least once");
  }
  std::map<std::string, int64_t, std::less<>> counts;
  for (size_t i = 0; i < texts.size(); ++i) {
    check_text(texts[i], options.units, "text " + std::to_string(i), 1);
    for_each_token(texts[i], options.units, [&](std::string_view token, size_t) {
      const auto found = counts.find(token);
      if (found == counts.end()) {
        counts.emplace(token, 1);
      } else {
        ++found->second;
      }
    });
  }
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const int64_t room = options.most == 0 ? static_cast<int64_t>(sorted.size())
                                         : options.most - (options.unknown ? 1 : 0);
  std::vector<std::string> tokens;
  if (options.unknown) tokens.emplace_back(kUnknownToken);
  int64_t kept = 0;
  for (const auto& [token, count] : sorted) {
    if (kept == room || count < options.least_count) break;
    tokens.push_back(token);
    ++kept;
  }
  if (!options.unknown && kept < static_cast<int64_t>(sorted.size())) {
    refuse("the limits leave out " + counted(static_cast<int64_t>(sorted.size()) - kept, "token") +
               " of the texts, so these could not be read",
           kTokenHint);
  }
  if (tokens.empty()) refuse("the texts are empty", "");
  return of(std::move(tokens), options.units, options.unknown);
}

std::vector<int32_t> Vocabulary::encode(std::string_view text, const std::string& where,
                                        int64_t first_line) const {
  check_text(text, units_, where, first_line);
  std::vector<int32_t> encoded;
  if (units_ == TextUnits::bytes) {
    encoded.reserve(text.size());
    for (const char c : text) encoded.push_back(static_cast<unsigned char>(c));
    return encoded;
  }
  for_each_token(text, units_, [&](std::string_view token, size_t at) {
    if (of_numbers_ && token == "\n") return;
    const auto found = numbers_.find(token);
    if (found == numbers_.end() && of_numbers_) {
      const std::string what = is_plain_number(token)
                                   ? "token " + std::to_string(encoded.size()) + " is " +
                                         printable(token) + ", but the vocabulary has " +
                                         counted(size(), "token") + ", counted from 0"
                                   : shown_token(token) + " is not a number of a token";
      throw DataError("[vocabulary] " + position_in(text, at, where, first_line) + ": " + what,
                      "numbers of tokens are 0 to " + std::to_string(size() - 1) +
                          ", without leading zeros and with white space between them");
    }
    if (found == numbers_.end() && !unknown_) {
      throw DataError("[vocabulary] " + position_in(text, at, where, first_line) + ": " +
                          shown_token(token) + " is not among the " + counted(size(), "token") +
                          " of the vocabulary",
                      kTokenHint);
    }
    encoded.push_back(found == numbers_.end() ? 0 : found->second);
  });
  return encoded;
}

std::string Vocabulary::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i];
    if (token < 0 || token >= size()) {
      throw InvalidArgument("[vocabulary] token " + std::to_string(i) + " is " +
                            std::to_string(token) + ", but the vocabulary has " +
                            std::to_string(size()) + ", counted from 0");
    }
    if (units_ == TextUnits::bytes) {
      text += static_cast<char>(token);
      continue;
    }
    const std::string& word = tokens_[static_cast<size_t>(token)];
    const bool apart =
        units_ == TextUnits::words && !text.empty() && text.back() != '\n' && word != "\n";
    text += (apart ? " " : "") + word;
  }
  return text;
}

std::string Vocabulary::to_json() const {
  nlohmann::ordered_json json;
  json["units"] = name_of(units_);
  if (units_ != TextUnits::bytes) {
    json["unknown"] = unknown_;
    json["tokens"] = tokens_;
  }
  return json.dump();
}

Vocabulary Vocabulary::from_json(std::string_view text, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw DataError("[vocabulary] " + where + " is not a vocabulary: " + what);
  };
  nlohmann::json json;
  try {
    json = parse_json<nlohmann::json>(text);
  } catch (const JsonError& error) {
    refuse(error.what());
  }
  if (!json.is_object() || !json.contains("units") || !json["units"].is_string()) {
    refuse("it has no `units`");
  }
  const auto name = json["units"].get<std::string>();
  const auto found = std::find(kUnitNames.begin(), kUnitNames.end(), name);
  if (found == kUnitNames.end()) refuse("`units` is `" + printable(name) + "`");
  const auto units = static_cast<TextUnits>(found - kUnitNames.begin());
  if (units == TextUnits::bytes) return {};
  const auto is_text = [](const nlohmann::json& token) { return token.is_string(); };
  if (!json.contains("tokens") || !json["tokens"].is_array() ||
      !std::all_of(json["tokens"].begin(), json["tokens"].end(), is_text)) {
    refuse("`tokens` is not a list of texts");
  }
  if (!json.contains("unknown") || !json["unknown"].is_boolean()) {
    refuse("`unknown` is neither true nor false");
  }
  try {
    return of(json["tokens"].get<std::vector<std::string>>(), units, json["unknown"].get<bool>());
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  return {};
}

}  // namespace lockstep
