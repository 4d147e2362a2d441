#include "lockstep/base/field_words.h"

#include <cmath>
#include <limits>

namespace lockstep::detail {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr auto no_min = std::numeric_limits<int64_t>::min();
constexpr auto no_max = std::numeric_limits<int64_t>::max();

template <size_t axes>
ordered_json json_along(const PaddingAlong<axes>& padding) {
  if (padding.same) return "same";
  if (padding == PaddingAlong<axes>::all(padding.before[0])) return padding.before[0];
  if (axes > 1 && padding.before == padding.after) return padding.before;
  ordered_json sides = ordered_json::array();
  for (size_t a = 0; a < axes; ++a) {
    sides.push_back(padding.before[a]);
    sides.push_back(padding.after[a]);
  }
  return sides;
}

}  // namespace

std::string text_of(double value) {
  std::string text = std::isfinite(value) ? json(value).dump() : std::to_string(value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string text_of(const json& value) {
  if (value.is_number_float()) return text_of(value.get<double>());
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr size_t longest = 200;
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

std::string words_for(const IntegerRule& rule, const std::string& noun) {
  if (rule.min != no_min && rule.max != no_max) {
    return noun + " from " + std::to_string(rule.min) + " to " + std::to_string(rule.max);
  }
  if (rule.min != no_min) return noun + " >= " + std::to_string(rule.min);
  if (rule.max != no_max) return noun + " <= " + std::to_string(rule.max);
  return noun;
}

std::string words_for(const NumberRule& rule) {
  std::string text = "number";
  const bool bounded_below = std::isfinite(rule.min);
  if (bounded_below) text += (rule.min_excluded ? " > " : " >= ") + text_of(rule.min);
  if (std::isfinite(rule.max)) {
    text += bounded_below ? " and" : "";
    text += (rule.max_excluded ? " < " : " <= ") + text_of(rule.max);
  }
  return text;
}

std::string words_for(const NumberRangeRule& rule) {
  return std::string(rule.symmetric ? "number >= 0" : "number") +
         ", or [low, high] with low <= high" +
         (std::isfinite(rule.min) ? ", from " + text_of(rule.min) + " to " + text_of(rule.max)
                                  : "");
}

std::string words_for(const std::vector<std::string>& choices) {
  if (choices.empty()) return "text";
  std::string text;
  for (const std::string& choice : choices) {
    text += text.empty() ? "one of " : ", ";
    text += '"' + choice + '"';
  }
  return text;
}

std::string words_for_integer_or(const char* word) {
  return std::string("whole number >= 1 or \"") + word + '"';
}

ordered_json json_of(const Padding2d& padding) {
  if (padding.same) return "same";
  const bool rows_equal = padding.top == padding.bottom;
  const bool columns_equal = padding.left == padding.right;
  if (rows_equal && columns_equal && padding.top == padding.left) return padding.top;
  if (rows_equal && columns_equal) return ordered_json::array({padding.top, padding.left});
  return ordered_json::array({padding.top, padding.bottom, padding.left, padding.right});
}

ordered_json json_of(const Padding1d& padding) { return json_along(padding); }
ordered_json json_of(const Padding3d& padding) { return json_along(padding); }
ordered_json json_of(const Size2d& size) { return ordered_json::array({size[0], size[1]}); }

}  // namespace lockstep::detail
