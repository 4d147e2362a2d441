#include "lockstep/data/datastores/tables/table_numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/data/datastores/tables/table_text.h"

namespace lockstep {
namespace {

// Whether a decimal number that f64 cannot hold is too near to 0 for it, instead of too far.
bool is_tiny(std::string_view digits) {
  constexpr int64_t most = 1'000'000'000'000;
  const size_t e = digits.find_first_of("eE");
  std::string_view exponent = e == std::string_view::npos ? "" : digits.substr(e + 1);
  const bool negative = exponent.starts_with('-');
  int64_t power = 0;  // of ten, of the first digit that is not 0
  for (const char c : exponent) {
    if (c >= '0' && c <= '9') power = std::min(most, 10 * power + (c - '0'));
  }
  if (negative) power = -power;
  const std::string_view mantissa = digits.substr(0, e);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  const size_t first = mantissa.find_first_of("123456789");
  if (first == std::string_view::npos) return true;
  return power + static_cast<int64_t>(point) - static_cast<int64_t>(first) < 0;
}

}  // namespace

bool parse_table_number(std::string_view text, float& value, const char*& why) {
  // Numbers from here on round to infinity in f32.
  constexpr double too_large = 0x1.ffffffp127;
  text = without_blanks(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double wide = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, wide);
  why = "is not a number";
  if (text.empty() || stop != end || error == std::errc::invalid_argument) return false;
  if (error == std::errc::result_out_of_range && is_tiny(text)) {
    wide = text.starts_with('-') ? -0.0 : 0.0;
  } else if (error != std::errc()) {
    why = "is out of the range of f32";
    return false;
  }
  why = "is not finite";
  if (!std::isfinite(wide)) return false;
  why = "is out of the range of f32";
  if (std::abs(wide) >= too_large) return false;
  value = static_cast<float>(wide);
  return true;
}

bool rounds_whole_number(std::string_view text, float value) {
  // f32 holds all that are nearer to 0.
  constexpr float first = 0x1p24f, too_large = 0x1p64f;
  const float size = std::abs(value);
  if (size < first) return false;
  text = without_blanks(text);
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  const size_t point = text.find('.');
  if (point != std::string_view::npos) {
    if (text.find_first_not_of('0', point + 1) != std::string_view::npos) return false;
    text = text.substr(0, point);
  }
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const char* const end = text.data() + text.size();
  if (size < too_large) {
    uint64_t whole = 0;
    if (std::from_chars(text.data(), end, whole).ec == std::errc()) {
      return whole != static_cast<uint64_t>(size);
    }
  }
  double wide = 0;
  std::from_chars(text.data(), end, wide);
  return wide != static_cast<double>(size);
}

bool parse_comma_number(std::string_view text, CommaNumber& number, const char*& why) {
  why = "is not a number";
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.find('.') != std::string_view::npos) return false;
  std::string pointed(text);
  pointed[comma] = '.';
  if (!parse_table_number(pointed, number.value, why)) return false;
  text = without_blanks(text);
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t whole = text.find(',');
  number.grouped =
      whole >= 1 && whole <= 3 && text.size() == whole + 4 && text.front() != '0' &&
      std::all_of(text.begin() + static_cast<std::ptrdiff_t>(whole) + 1, text.end(), digit);
  return true;
}

}  // namespace lockstep
