// "did you mean ...?": the nearest valid name to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The candidate with the smallest edit distance (Damerau-Levenshtein, case and -/_ ignored), or ""
// when none is near enough (more than a third of the longer name differs).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// Text for a hint: "did you mean `x`?" when a name is near, else "known names: a, b, c".
std::string suggest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
