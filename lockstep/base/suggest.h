// "did you mean ...?": finds the valid name that is nearest to a misspelled one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns the candidate that differs in one letter at most; or else one that is another system's
// word for the same (`lr`, `Conv2d`, `out_features`), in either direction; or else the one with the
// smallest edit distance (Damerau-Levenshtein). Case, '-' and '_' are ignored. Returns "" if there
// is no such word and more than a third of the longer name differs for every candidate.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// Text for a hint: "did you mean `x`?" if a candidate is near, or a few contain the name or are
// half of it; else "known names: a, b, c", of which a long list has the first alone.
std::string suggest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
