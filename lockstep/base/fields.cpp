#include "lockstep/base/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/field_words.h"
#include "lockstep/base/suggest.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Doubles represent every whole number exactly up to this limit (2^53).
constexpr double exact_limit = 9007199254740992.0;

}  // namespace

using namespace detail;

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
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      wrong(name, expected, value);
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

// A missing required name is often present but misspelled. The error then suggests that key.
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

// Applies `read` to each element. A field that is not an array stands for a list of one.
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
  // The comparisons also refuse NaN.
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

}  // namespace lockstep
