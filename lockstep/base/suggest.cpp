#include "lockstep/base/suggest.h"

#include <algorithm>

namespace lockstep {
namespace {

// Drops the differences that do not make another name: case, '-' and '_'.
std::string plain(std::string_view name) {
  std::string result;
  for (char c : name) {
    if (c == '-' || c == '_') continue;
    result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return result;
}

// Counts the insertions, deletions, replacements and swaps of neighbors that turn `a` into `b`
// (optimal string alignment).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string wanted = plain(name);
  std::string best;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::string known = plain(candidate);
    const size_t longer = std::max(wanted.size(), known.size());
    const size_t shorter = std::min(wanted.size(), known.size());
    if ((longer - shorter) * 3 > longer) continue;  // cheap test first
    const size_t distance = edit_distance(wanted, known);
    if (distance * 3 > longer) continue;
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggest(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) return "did you mean `" + nearest + "`?";
  constexpr size_t most = 20;
  const size_t shown = candidates.size() > most + 1 ? most : candidates.size();
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    text += text.empty() ? "known names: " : ", ";
    text += candidates[i];
  }
  if (shown < candidates.size()) {
    text += " and " + std::to_string(candidates.size() - shown) + " more";
  }
  return text;
}

}  // namespace lockstep
