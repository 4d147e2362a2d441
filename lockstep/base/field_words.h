// Internal part of fields.h: text for values and rules, in error messages and in the reference.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep::detail {

// "10" rather than "10.0".
std::string text_of(double value);
// Long text is cut.
std::string text_of(const nlohmann::json& value);

// Describes the values that a rule admits, for example "whole number >= 1".
std::string words_for(const IntegerRule& rule, const std::string& noun);
std::string words_for(const NumberRule& rule);
std::string words_for(const NumberRangeRule& rule);
std::string words_for(const std::vector<std::string>& choices);
std::string words_for_integer_or(const char* word);
inline constexpr const char* words_for_padding1d =
    "\"same\", a whole number >= 0 or [before, after]";
inline constexpr const char* words_for_padding3d =
    "\"same\", a whole number >= 0, [depth, rows, columns] or six: before and after of each";

// The shortest JSON form of a value.
nlohmann::ordered_json json_of(const Padding2d& padding);
nlohmann::ordered_json json_of(const Padding1d& padding);
nlohmann::ordered_json json_of(const Padding3d& padding);
nlohmann::ordered_json json_of(const Size2d& size);

}  // namespace lockstep::detail
