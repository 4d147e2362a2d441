#include "lockstep/base/json/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace lockstep {
namespace {

// The byte of the first bracket that is nested deeper, from 1, or 0. Text that is not JSON may
// give any byte; parsing refuses it anyway.
size_t too_deep(std::string_view text, int deepest) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest) return i + 1;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return 0;
}

std::string at_byte(size_t byte) { return " (byte " + std::to_string(byte) + ")"; }

void check(std::string_view text, const JsonRules& rules) {
  // The parser takes a byte 0 for the end.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw JsonError(JsonError::Kind::syntax, zero + 1, "it is not JSON" + at_byte(zero + 1));
  }
  if (const size_t byte = too_deep(text, rules.deepest); byte > 0) {
    throw JsonError(
        JsonError::Kind::depth, byte,
        "it is nested more than " + std::to_string(rules.deepest) + " levels deep" + at_byte(byte));
  }
}

template <class Json>
Json parsed_with_unique_keys(std::string_view text) {
  using Event = typename Json::parse_event_t;
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Event event, Json& value) {
    const auto level = static_cast<size_t>(std::max(depth, 0));
    if (event == Event::object_start) {
      if (keys.size() < level + 2) keys.resize(level + 2);
      keys[level + 1].clear();
    } else if (event == Event::key) {
      const auto& key = value.template get_ref<const std::string&>();
      if (!keys[level].insert(key).second) {
        constexpr size_t longest = 100;
        throw JsonError(
            JsonError::Kind::repeated_key, 0,
            "it contains " +
                Json(key.substr(0, longest)).dump(-1, ' ', true, Json::error_handler_t::replace) +
                " twice");
      }
    }
    return true;
  };
  return Json::parse(text, watch);
}

}  // namespace

template <class Json>
Json parse_json(std::string_view text, const JsonRules& rules) {
  check(text, rules);
  try {
    return rules.unique_keys ? parsed_with_unique_keys<Json>(text) : Json::parse(text);
  } catch (const typename Json::parse_error& error) {
    throw JsonError(JsonError::Kind::syntax, error.byte, "it is not JSON" + at_byte(error.byte));
  } catch (const typename Json::exception&) {
    throw JsonError(JsonError::Kind::number, 0, "it contains a number that is too large");
  }
}

template <class Json>
Json parse_json_or_discard(std::string_view text) {
  const bool fits = text.find('\0') == std::string_view::npos && too_deep(text, deepest_json) == 0;
  return fits ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded);
}

template nlohmann::json parse_json(std::string_view, const JsonRules&);
template nlohmann::ordered_json parse_json(std::string_view, const JsonRules&);
template nlohmann::json parse_json_or_discard(std::string_view);
template nlohmann::ordered_json parse_json_or_discard(std::string_view);

}  // namespace lockstep
