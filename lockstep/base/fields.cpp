#include "lockstep/base/fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Doubles count whole numbers exactly up to here.
constexpr double exact_limit = 9007199254740992.0;

constexpr auto no_min = std::numeric_limits<int64_t>::min();
constexpr auto no_max = std::numeric_limits<int64_t>::max();

// "10" rather than "10.0".
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

// "whole number >= 1": the words for what a rule admits.
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

template <size_t axes>
ordered_json json_of(const PaddingAlong<axes>& padding) {
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

constexpr const char* words_for_padding1d = "\"same\", a whole number >= 0 or [before, after]";
constexpr const char* words_for_padding3d =
    "\"same\", a whole number >= 0, [depth, rows, columns] or six: before and after of each";

ordered_json json_of(const Size2d& size) { return ordered_json::array({size[0], size[1]}); }

}  // namespace

FieldReader::FieldReader(const json& object, std::string where, Expression expression,
                         std::vector<std::string> also)
    : object_(object),
      where_(std::move(where)),
      expression_(std::move(expression)),
      known_(std::move(also)) {
  if (!object.is_object()) {
    throw InvalidArgument("[" + where_ + "] must hold named fields, received " + text_of(object));
  }
}

FieldReader::~FieldReader() = default;

const json* FieldReader::find(const char* name) {
  known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() ? nullptr : &*found;
}

void FieldReader::wrong(const char* name, const std::string& expected, const json& value) const {
  throw InvalidArgument("[" + where_ + "] " + name + " must be " + expected + ", received " +
                        text_of(value));
}

double FieldReader::evaluate(const char* name, const json& value, const char* expected) const {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string() || !expression_) wrong(name, expected, value);
  return expression_(value.get_ref<const std::string&>(), where_ + "." + name);
}

int64_t FieldReader::whole(const char* name, const json& value, const IntegerRule& rule) const {
  const std::string expected = words_for(rule, "a whole number");
  int64_t result = 0;
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(no_max)) wrong(name, expected, value);
    result = static_cast<int64_t>(number);
  } else if (value.is_number_integer()) {
    result = value.get<int64_t>();
  } else {
    const double number = evaluate(name, value, expected.c_str());
    const bool counts = std::abs(number) <= exact_limit && std::floor(number) == number;
    if (counts) result = static_cast<int64_t>(number);
    if (!counts || result < rule.min || result > rule.max) {
      if (!value.is_string()) wrong(name, expected, value);
      throw InvalidArgument("[" + where_ + "] " + name + " must be " + expected + ", received " +
                            text_of(value) + ", which is " + text_of(number));
    }
  }
  if (result < rule.min || result > rule.max) wrong(name, expected, value);
  return result;
}

namespace {

// A required name that is missing is often there with a slip.
[[noreturn]] void missing(const std::string& where, const char* name, const char* help,
                          const json& object, const std::vector<std::string>& known) {
  std::vector<std::string> unclaimed;
  for (const auto& [key, unused] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) unclaimed.push_back(key);
  }
  const std::string near = nearest_name(name, unclaimed);
  throw InvalidArgument("[" + where + "] " + name + " is missing (" + help + ")",
                        near.empty() ? "add it" : "is `" + near + "` meant to be `" + name + "`?");
}

// What `read` makes of each element, or of one that stands for a list of one.
template <class Read>
auto list_of(const json& field, const Read& read) {
  std::vector<decltype(read(field))> all;
  if (!field.is_array()) {
    all.push_back(read(field));
    return all;
  }
  for (const json& element : field) all.push_back(read(element));
  return all;
}

}  // namespace

void FieldReader::integer(const char* name, int64_t& value, const char* help, IntegerRule rule) {
  if (const json* field = find(name)) {
    value = whole(name, *field, rule);
  } else if (rule.required) {
    missing(where_, name, help, object_, known_);
  }
}

double FieldReader::real(const char* name, const json& value, const NumberRule& rule) const {
  const std::string expected = "a " + words_for(rule);
  const double number = evaluate(name, value, expected.c_str());
  const bool good = std::isfinite(number) &&
                    (rule.min_excluded ? number > rule.min : number >= rule.min) &&
                    (rule.max_excluded ? number < rule.max : number <= rule.max);
  if (!good) {
    throw InvalidArgument("[" + where_ + "] " + name + " must be " + expected + ", received " +
                          (value.is_string() ? text_of(value) + ", which is " : "") +
                          text_of(number));
  }
  return number;
}

std::string FieldReader::choice(const char* name, const json& value,
                                const std::vector<std::string>& choices) const {
  if (!value.is_string()) wrong(name, words_for(choices), value);
  const auto& given = value.get_ref<const std::string&>();
  if (!choices.empty() && std::find(choices.begin(), choices.end(), given) == choices.end()) {
    const std::string near = nearest_name(given, choices);
    throw InvalidArgument("[" + where_ + "] " + name + " must be " + words_for(choices) +
                              ", received " + text_of(value),
                          near.empty() ? "" : "did you mean `" + near + "`?");
  }
  return given;
}

void FieldReader::number(const char* name, double& value, const char*, NumberRule rule) {
  if (const json* field = find(name)) value = real(name, *field, rule);
}

void FieldReader::numbers(const char* name, std::vector<double>& values, const char*,
                          NumberRule rule) {
  if (const json* field = find(name)) {
    values = list_of(*field, [&](const json& element) { return real(name, element, rule); });
  }
}

void FieldReader::texts(const char* name, std::vector<std::string>& values, const char*,
                        const std::vector<std::string>& choices) {
  if (const json* field = find(name)) {
    values = list_of(*field, [&](const json& element) { return choice(name, element, choices); });
  }
}

void FieldReader::flag(const char* name, bool& value, const char*) {
  const json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_boolean()) wrong(name, "true or false", *field);
  value = field->get<bool>();
}

void FieldReader::text(const char* name, std::string& value, const char*,
                       const std::vector<std::string>& choices) {
  if (const json* field = find(name)) value = choice(name, *field, choices);
}

void FieldReader::size(const char* name, Size2d& value, const char* help, IntegerRule rule) {
  const json* field = find(name);
  if (field == nullptr) {
    if (rule.required) missing(where_, name, help, object_, known_);
    return;
  }
  if (!field->is_array()) {
    const int64_t both = whole(name, *field, rule);
    value = {both, both};
    return;
  }
  if (field->size() != 2) {
    wrong(name, "one number or [rows, columns], each a " + words_for(rule, "whole number"), *field);
  }
  const Size2d both = {whole(name, (*field)[0], rule), whole(name, (*field)[1], rule)};
  value = both;
}

void FieldReader::size(const char* name, Size3d& value, const char* help, IntegerRule rule) {
  const json* field = find(name);
  if (field == nullptr) {
    if (rule.required) missing(where_, name, help, object_, known_);
    return;
  }
  if (!field->is_array()) {
    value.fill(whole(name, *field, rule));
    return;
  }
  if (field->size() != 3) {
    wrong(name, "one " + words_for(rule, "whole number") + " or [depth, rows, columns]", *field);
  }
  for (size_t a = 0; a < 3; ++a) value[a] = whole(name, (*field)[a], rule);
}

void FieldReader::integers(const char* name, std::vector<int64_t>& value, const char* help,
                           IntegerRule rule) {
  const json* field = find(name);
  if (field == nullptr) {
    if (rule.required) missing(where_, name, help, object_, known_);
    return;
  }
  if (field->is_array() && field->empty()) {
    wrong(name, "one number or a list, each a " + words_for(rule, "whole number"), *field);
  }
  value = list_of(*field, [&](const json& element) { return whole(name, element, rule); });
}

void FieldReader::range(const char* name, Size2d& value, const char*) {
  const json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_array()) {
    const int64_t end = whole(name, *field, {.min = 0});
    value = {-end, end};
    return;
  }
  const char* expected = "one whole number >= 0 or [low, high] with low <= high";
  if (field->size() != 2) wrong(name, expected, *field);
  const Size2d ends = {whole(name, (*field)[0], {}), whole(name, (*field)[1], {})};
  if (ends[0] > ends[1]) wrong(name, expected, *field);
  value = ends;
}

void FieldReader::number_range(const char* name, NumberRange& value, const char*,
                               NumberRangeRule rule) {
  const json* field = find(name);
  if (field == nullptr) return;
  const std::string expected = "a " + words_for(rule);
  NumberRange ends{};
  if (field->is_array()) {
    if (field->size() != 2) wrong(name, expected, *field);
    for (size_t i = 0; i < 2; ++i) ends[i] = evaluate(name, (*field)[i], expected.c_str());
  } else {
    ends[1] = evaluate(name, *field, expected.c_str());
    ends[0] = rule.symmetric ? -ends[1] : ends[1];
  }
  // Written so that NaN is refused, too.
  const bool good = ends[0] <= ends[1] && ends[0] >= rule.min && ends[1] <= rule.max &&
                    std::isfinite(ends[0]) && std::isfinite(ends[1]);
  if (!good) wrong(name, expected, *field);
  value = ends;
}

void FieldReader::padding(const char* name, Padding2d& value, const char*) {
  const json* field = find(name);
  if (field == nullptr) return;
  const IntegerRule rule{.min = 0};
  const char* expected =
      "\"same\", a whole number >= 0, [rows, columns] or [top, bottom, left, right]";
  if (field->is_string() && field->get_ref<const std::string&>() == "same") {
    value = same_padding;
  } else if (field->is_array()) {
    if (field->size() != 2 && field->size() != 4) wrong(name, expected, *field);
    std::vector<int64_t> sides;
    for (const json& side : *field) sides.push_back(whole(name, side, rule));
    value = sides.size() == 2 ? Padding2d{false, sides[0], sides[0], sides[1], sides[1]}
                              : Padding2d{false, sides[0], sides[1], sides[2], sides[3]};
  } else {
    if (!field->is_number() && !(field->is_string() && expression_)) wrong(name, expected, *field);
    value = lockstep::padding(whole(name, *field, rule));
  }
}

template <size_t axes>
void FieldReader::read_padding(const char* name, PaddingAlong<axes>& value, const char* expected) {
  const json* field = find(name);
  if (field == nullptr) return;
  const IntegerRule rule{.min = 0};
  if (field->is_string() && field->get_ref<const std::string&>() == "same") {
    value = {.same = true};
    return;
  }
  if (!field->is_array()) {
    if (!field->is_number() && !(field->is_string() && expression_)) wrong(name, expected, *field);
    value = PaddingAlong<axes>::all(whole(name, *field, rule));
    return;
  }
  const bool pairs = field->size() == 2 * axes;
  if (!pairs && (axes == 1 || field->size() != axes)) wrong(name, expected, *field);
  value.same = false;
  for (size_t a = 0; a < axes; ++a) {
    value.before[a] = whole(name, (*field)[pairs ? 2 * a : a], rule);
    value.after[a] = whole(name, (*field)[pairs ? 2 * a + 1 : a], rule);
  }
}

void FieldReader::padding(const char* name, Padding1d& value, const char*) {
  read_padding(name, value, words_for_padding1d);
}

void FieldReader::padding(const char* name, Padding3d& value, const char*) {
  read_padding(name, value, words_for_padding3d);
}

void FieldReader::integer_or(const char* name, int64_t& value, const char* word, const char*) {
  const json* field = find(name);
  if (field == nullptr) return;
  if (field->is_string() && field->get_ref<const std::string&>() == word) {
    value = 0;
    return;
  }
  const bool numeric = field->is_number() || (field->is_string() && expression_);
  if (!numeric) wrong(name, "a " + words_for_integer_or(word), *field);
  value = whole(name, *field, {.min = 1});
}

void FieldReader::finish() const {
  for (const auto& [key, unused] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      throw InvalidArgument("[" + where_ + "] unknown field '" + key + "'", suggest(key, known_));
    }
  }
}

void FieldWriter::integer(const char* name, int64_t& value, const char*, IntegerRule) {
  object_[name] = value;
}

void FieldWriter::number(const char* name, double& value, const char*, NumberRule) {
  if (!std::isfinite(value)) {
    throw InvalidArgument("[fields] " + std::string(name) + " must be finite, received " +
                          std::to_string(value));
  }
  object_[name] = value;
}

// A list of one is written as that one.
void FieldWriter::numbers(const char* name, std::vector<double>& values, const char*, NumberRule) {
  for (double value : values) {
    if (std::isfinite(value)) continue;
    throw InvalidArgument("[fields] " + std::string(name) + " must be finite, received " +
                          std::to_string(value));
  }
  object_[name] = values.size() == 1 ? json(values[0]) : json(values);
}

void FieldWriter::texts(const char* name, std::vector<std::string>& values, const char*,
                        const std::vector<std::string>&) {
  object_[name] = values.size() == 1 ? json(values[0]) : json(values);
}

void FieldWriter::flag(const char* name, bool& value, const char*) { object_[name] = value; }

void FieldWriter::text(const char* name, std::string& value, const char*,
                       const std::vector<std::string>&) {
  object_[name] = value;
}

void FieldWriter::size(const char* name, Size2d& value, const char*, IntegerRule) {
  object_[name] = json_of(value);
}

void FieldWriter::size(const char* name, Size3d& value, const char*, IntegerRule) {
  object_[name] = value;
}

void FieldWriter::integers(const char* name, std::vector<int64_t>& value, const char*,
                           IntegerRule) {
  object_[name] = value;
}

void FieldWriter::range(const char* name, Size2d& value, const char*) {
  object_[name] = json_of(value);
}

void FieldWriter::number_range(const char* name, NumberRange& value, const char*, NumberRangeRule) {
  object_[name] = ordered_json::array({value[0], value[1]});
}

void FieldWriter::padding(const char* name, Padding2d& value, const char*) {
  object_[name] = json_of(value);
}

void FieldWriter::padding(const char* name, Padding1d& value, const char*) {
  object_[name] = json_of(value);
}

void FieldWriter::padding(const char* name, Padding3d& value, const char*) {
  object_[name] = json_of(value);
}

void FieldWriter::integer_or(const char* name, int64_t& value, const char* word, const char*) {
  if (value == 0) {
    object_[name] = word;
  } else {
    object_[name] = value;
  }
}

void FieldLister::integer(const char* name, int64_t& value, const char* help, IntegerRule rule) {
  fields.push_back({name, words_for(rule, "whole number"),
                    rule.required ? "required" : std::to_string(value), help});
}

void FieldLister::number(const char* name, double& value, const char* help, NumberRule rule) {
  fields.push_back({name, words_for(rule), text_of(value), help});
}

void FieldLister::flag(const char* name, bool& value, const char* help) {
  fields.push_back({name, "true or false", value ? "true" : "false", help, {"true", "false"}});
}

void FieldLister::text(const char* name, std::string& value, const char* help,
                       const std::vector<std::string>& choices) {
  fields.push_back({name, words_for(choices), '"' + value + '"', help, choices});
}

void FieldLister::size(const char* name, Size2d& value, const char* help, IntegerRule rule) {
  fields.push_back({name, words_for(rule, "whole number") + ", or [rows, columns]",
                    rule.required ? "required" : json_of(value).dump(), help});
}

void FieldLister::size(const char* name, Size3d& value, const char* help, IntegerRule rule) {
  fields.push_back({name, words_for(rule, "whole number") + ", or [depth, rows, columns]",
                    rule.required ? "required" : ordered_json(value).dump(), help});
}

void FieldLister::integers(const char* name, std::vector<int64_t>& value, const char* help,
                           IntegerRule rule) {
  fields.push_back({name, words_for(rule, "whole number") + ", or a list of them",
                    rule.required ? "required" : ordered_json(value).dump(), help});
}

void FieldLister::range(const char* name, Size2d& value, const char* help) {
  fields.push_back({name, "whole number >= 0, or [low, high]", json_of(value).dump(), help});
}

void FieldLister::number_range(const char* name, NumberRange& value, const char* help,
                               NumberRangeRule rule) {
  fields.push_back(
      {name, words_for(rule), "[" + text_of(value[0]) + "," + text_of(value[1]) + "]", help});
}

void FieldLister::padding(const char* name, Padding2d& value, const char* help) {
  fields.push_back({name,
                    "\"same\", whole number >= 0, [rows, columns] or [top, bottom, left, right]",
                    json_of(value).dump(), help});
}

void FieldLister::padding(const char* name, Padding1d& value, const char* help) {
  fields.push_back({name, words_for_padding1d, json_of(value).dump(), help});
}

void FieldLister::padding(const char* name, Padding3d& value, const char* help) {
  fields.push_back({name, words_for_padding3d, json_of(value).dump(), help});
}

void FieldLister::integer_or(const char* name, int64_t& value, const char* word, const char* help) {
  fields.push_back({name, words_for_integer_or(word),
                    value == 0 ? '"' + std::string(word) + '"' : std::to_string(value), help});
}

void FieldLister::numbers(const char* name, std::vector<double>& values, const char* help,
                          NumberRule rule) {
  fields.push_back({name, words_for(rule) + ", or a list of them", json(values).dump(), help});
}

void FieldLister::texts(const char* name, std::vector<std::string>& values, const char* help,
                        const std::vector<std::string>& choices) {
  fields.push_back({name, words_for(choices) + ", or a list of them",
                    values.size() == 1 ? json(values[0]).dump() : json(values).dump(), help,
                    choices});
}

}  // namespace lockstep
