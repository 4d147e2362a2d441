// JSON from outside: files of run folders, models, answers of servers, messages.
//
// All JSON is read by these functions (tests/layout_test.py). Copies, comparisons and dumps of
// nested values are recursive, so that a few thousand brackets would end the process: the depth is
// checked before anything is parsed.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// Lists and objects inside each other. What Lockstep writes has at most some 70.
inline constexpr int deepest_json = 100;

struct JsonRules {
  int deepest = deepest_json;
  bool unique_keys = false;  // refuse an object that has a key twice
};

// Text that is not JSON or does not fit the rules. The message names no file: "it is not JSON (byte
// 17)".
class JsonError : public DataError {
 public:
  enum class Kind { syntax, number, depth, repeated_key };
  JsonError(Kind kind, size_t byte, const std::string& message)
      : DataError(message), kind_(kind), byte_(byte) {}
  Kind kind() const { return kind_; }
  size_t byte() const { return byte_; }  // where it was found, from 1

 private:
  Kind kind_;
  size_t byte_;
};

// The value of a text. `Json` is nlohmann::json or nlohmann::ordered_json. Throws JsonError, also
// for a byte 0 and for numbers that no double holds. Thread-safe.
template <class Json>
Json parse_json(std::string_view text, const JsonRules& rules = {});

// The same, but a discarded value (is_discarded(), neither an object nor anything else) instead of
// JsonError.
template <class Json>
Json parse_json_or_discard(std::string_view text);

}  // namespace lockstep
