// Numbers in the fields of tables.
#pragma once

#include <string_view>

namespace lockstep {

// Parses a decimal number that f32 can hold into `value`: the f64 that is nearest to it, rounded to
// f32. A number nearer to 0 than any other becomes 0, with its sign. Otherwise returns false, and
// `why` says why: "is not a number". Does not depend on the locale. Thread-safe.
bool parse_table_number(std::string_view text, float& value, const char*& why);

// Whether `text`, a number that was read as `value`, is a whole number, written without exponent,
// that f32 does not hold. Thread-safe.
bool rounds_whole_number(std::string_view text, float value);

// A number with a decimal comma, such as "-1,5e3". `grouped`: it may as well be a whole number with
// a separator of thousands, such as "1,234". Thread-safe.
struct CommaNumber {
  float value = 0;
  bool grouped = false;
};
// Returns false for other texts, also for those with a decimal point, and for numbers that
// parse_table_number() refuses, with the same reason.
bool parse_comma_number(std::string_view text, CommaNumber& number, const char*& why);

}  // namespace lockstep
