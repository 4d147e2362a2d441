#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/data/datastores/parts.h"

namespace lockstep {
namespace {

// Takes numbers and separators from the front of a date.
class DateText {
 public:
  explicit DateText(std::string_view text) : rest_(text) {}

  bool empty() const { return rest_.empty(); }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Exactly `count` digits, up to `most`.
  bool number(size_t count, int most, int& value) {
    if (rest_.size() < count) return false;
    value = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!is_digit(rest_[i])) return false;
      value = 10 * value + (rest_[i] - '0');
    }
    rest_.remove_prefix(count);
    return value <= most;
  }
  // The digits of a fraction; those after the ninth are left out.
  bool fraction(int64_t& nanoseconds) {
    size_t count = 0;
    for (; !rest_.empty() && is_digit(rest_.front()); ++count, rest_.remove_prefix(1)) {
      if (count < 9) nanoseconds = 10 * nanoseconds + (rest_.front() - '0');
    }
    for (size_t i = count; i < 9; ++i) nanoseconds *= 10;
    return count > 0;
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  std::string_view rest_;
};

// The time of a day, and its distance from UTC.
bool take_clock(DateText& text, int64_t& seconds, int64_t& nanoseconds) {
  int hours = 0, minutes = 0, whole = 0;
  if (!text.number(2, 23, hours) || !text.take(':') || !text.number(2, 59, minutes)) return false;
  if (text.take(':')) {
    if (!text.number(2, 60, whole)) return false;
    if ((text.take('.') || text.take(',')) && !text.fraction(nanoseconds)) return false;
  }
  seconds += 3600 * hours + 60 * minutes + whole;
  if (text.take('Z')) return true;
  const int sign = text.take('+') ? -1 : text.take('-') ? 1 : 0;
  if (sign == 0) return true;
  if (!text.number(2, 23, hours)) return false;
  minutes = 0;
  text.take(':');
  if (!text.empty() && !text.number(2, 59, minutes)) return false;
  seconds += sign * (3600 * hours + 60 * minutes);
  return true;
}

std::optional<RowTime> parse_date(std::string_view from) {
  DateText text(from);
  int year = 0, month = 0, day = 0;
  if (!text.number(4, 9999, year) || !text.take('-') || !text.number(2, 12, month) ||
      !text.take('-') || !text.number(2, 31, day)) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  int64_t seconds = days * 86400, nanoseconds = 0;
  if (text.take('T') || text.take(' ')) {
    if (!take_clock(text, seconds, nanoseconds)) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  return RowTime{static_cast<double>(seconds), nanoseconds, true};
}

}  // namespace

std::optional<RowTime> parse_row_time(std::string_view text) {
  double value = 0;
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (whole && std::isfinite(value)) return RowTime{value, 0, false};
  return parse_date(text);
}

}  // namespace lockstep
