// Writing of fields: as JSON, and as a list for the reference.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/field_words.h"
#include "lockstep/base/fields.h"

namespace lockstep {

using namespace detail;
using nlohmann::json;
using nlohmann::ordered_json;

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

// A list with one element is written as that element.
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

void FieldLister::add(FieldInfo field) {
  field.effect = effect_;
  fields.push_back(std::move(field));
}

void FieldLister::integer(const char* name, int64_t& value, const char* help, IntegerRule rule) {
  add({name, words_for(rule, "whole number"), rule.required ? "required" : std::to_string(value),
       help});
}

void FieldLister::number(const char* name, double& value, const char* help, NumberRule rule) {
  add({name, words_for(rule), text_of(value), help});
}

void FieldLister::flag(const char* name, bool& value, const char* help) {
  add({name, "true or false", value ? "true" : "false", help, {"true", "false"}});
}

void FieldLister::text(const char* name, std::string& value, const char* help,
                       const std::vector<std::string>& choices) {
  add({name, words_for(choices), '"' + value + '"', help, choices});
}

void FieldLister::size(const char* name, Size2d& value, const char* help, IntegerRule rule) {
  add({name, words_for(rule, "whole number") + ", or [rows, columns]",
       rule.required ? "required" : json_of(value).dump(), help});
}

void FieldLister::size(const char* name, Size3d& value, const char* help, IntegerRule rule) {
  add({name, words_for(rule, "whole number") + ", or [depth, rows, columns]",
       rule.required ? "required" : ordered_json(value).dump(), help});
}

void FieldLister::integers(const char* name, std::vector<int64_t>& value, const char* help,
                           IntegerRule rule) {
  add({name, words_for(rule, "whole number") + ", or a list of them",
       rule.required ? "required" : ordered_json(value).dump(), help});
}

void FieldLister::range(const char* name, Size2d& value, const char* help) {
  add({name, "whole number >= 0, or [low, high]", json_of(value).dump(), help});
}

void FieldLister::number_range(const char* name, NumberRange& value, const char* help,
                               NumberRangeRule rule) {
  add({name, words_for(rule), "[" + text_of(value[0]) + "," + text_of(value[1]) + "]", help});
}

void FieldLister::padding(const char* name, Padding2d& value, const char* help) {
  add({name, "\"same\", whole number >= 0, [rows, columns] or [top, bottom, left, right]",
       json_of(value).dump(), help});
}

void FieldLister::padding(const char* name, Padding1d& value, const char* help) {
  add({name, words_for_padding1d, json_of(value).dump(), help});
}

void FieldLister::padding(const char* name, Padding3d& value, const char* help) {
  add({name, words_for_padding3d, json_of(value).dump(), help});
}

void FieldLister::integer_or(const char* name, int64_t& value, const char* word, const char* help) {
  add({name, words_for_integer_or(word),
       value == 0 ? '"' + std::string(word) + '"' : std::to_string(value), help});
}

void FieldLister::numbers(const char* name, std::vector<double>& values, const char* help,
                          NumberRule rule) {
  add({name, words_for(rule) + ", or a list of them", json(values).dump(), help});
}

void FieldLister::texts(const char* name, std::vector<std::string>& values, const char* help,
                        const std::vector<std::string>& choices) {
  add({name, words_for(choices) + ", or a list of them",
       values.size() == 1 ? json(values[0]).dump() : json(values).dump(), help, choices});
}

}  // namespace lockstep
