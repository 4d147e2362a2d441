// Inside of fields.h: values and rules in words, for errors and for the reference.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep::detail {

// "10" rather than "10.0".
std::string text_of(double value);
// Cut where it is long.
std::string text_of(const nlohmann::json& value);

// "whole number >= 1": the words for what a rule admits.
std::string words_for(const IntegerRule& rule, const std::string& noun);
std::string words_for(const NumberRule& rule);
std::string words_for(const NumberRangeRule& rule);
std::string words_for(const std::vector<std::string>& choices);
std::string words_for_integer_or(const char* word);
inline constexpr const char* words_for_padding1d =
    "\"same\", a whole number >= 0 or [before, after]";
inline constexpr const char* words_for_padding3d =
    "\"same\", a whole number >= 0, [depth, rows, columns] or six: before and after of each";

// As short as it can be said.
nlohmann::ordered_json json_of(const Padding2d& padding);
nlohmann::ordered_json json_of(const Padding1d& padding);
nlohmann::ordered_json json_of(const Padding3d& padding);
nlohmann::ordered_json json_of(const Size2d& size);

}  // namespace lockstep::detail
