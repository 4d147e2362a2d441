#include "lockstep/parallel/reduce/schedule.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep {

int64_t tree_split(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - 1)));
}

namespace {

IndexRange left_of(const IndexRange& node) { return {node.first, tree_split(node.count)}; }

IndexRange right_of(const IndexRange& node) {
  const int64_t left = tree_split(node.count);
  return {node.first + left, node.count - left};
}

void add_subtrees(const IndexRange& node, const IndexRange& range, std::vector<IndexRange>& found) {
  if (node.first >= range.end() || node.end() <= range.first) return;
  if (node.first >= range.first && node.end() <= range.end()) {
    found.push_back(node);
    return;
  }
  add_subtrees(left_of(node), range, found);
  add_subtrees(right_of(node), range, found);
}

void add_terms(const IndexRange& node, const std::function<bool(const IndexRange& node)>& whole,
               std::vector<SumTerm>& terms) {
  if (node.count == 1 || (whole && whole(node))) {
    terms.push_back({node, 0});
    return;
  }
  add_terms(left_of(node), whole, terms);
  add_terms(right_of(node), whole, terms);
  ++terms.back().additions;
}

}  // namespace

std::vector<IndexRange> complete_subtrees(int64_t leaves, const IndexRange& range) {
  std::vector<IndexRange> found;
  if (leaves > 0 && range.count > 0) add_subtrees({0, leaves}, range, found);
  return found;
}

std::vector<SumTerm> sum_terms(const IndexRange& node,
                               const std::function<bool(const IndexRange& node)>& whole) {
  std::vector<SumTerm> terms;
  if (node.count > 0) add_terms(node, whole, terms);
  return terms;
}

SumSchedule::SumSchedule(std::vector<IndexRange> of_members) : ranges(std::move(of_members)) {
  std::vector<IndexRange> all;
  for (const IndexRange& range : ranges) leaves += range.count;
  for (const IndexRange& range : ranges) {
    subtrees.push_back(complete_subtrees(leaves, range));
    all.insert(all.end(), subtrees.back().begin(), subtrees.back().end());
  }
  const auto whole = [&](const IndexRange& node) {
    const auto found = std::lower_bound(
        all.begin(), all.end(), node.first,
        [](const IndexRange& subtree, int64_t first) { return subtree.first < first; });
    return found != all.end() && *found == node;
  };
  std::vector<SumTerm> sum = sum_terms({0, leaves}, whole);
  size_t next = 0;
  for (size_t rank = 0; rank < subtrees.size(); ++rank) {
    for (size_t number = 0; number < subtrees[rank].size(); ++number) {
      terms.push_back({static_cast<int>(rank), number, sum.at(next++).additions});
    }
  }
}

SumSchedule SumSchedule::by_rank(std::vector<IndexRange> ranges) {
  SumSchedule schedule;
  for (const IndexRange& range : ranges) {
    schedule.leaves += range.count;
    schedule.subtrees.emplace_back();
    if (range.count == 0) continue;
    schedule.subtrees.back().push_back(range);
    const int rank = static_cast<int>(schedule.subtrees.size()) - 1;
    schedule.terms.push_back({rank, 0, schedule.terms.empty() ? 0 : 1});
  }
  schedule.ranges = std::move(ranges);
  return schedule;
}

SumNodes::SumNodes(std::span<const SumTerm> terms) : of_terms(terms.size()) {
  std::vector<Parent*> waiting;
  const size_t additions = terms.empty() ? 0 : terms.size() - 1;
  of_additions.resize(additions);
  int next = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    waiting.push_back(&of_terms[i]);
    for (int k = 0; k < terms[i].additions; ++k, ++next) {
      *waiting.back() = {next, false};
      waiting.pop_back();
      *waiting.back() = {next, true};
      waiting.back() = &of_additions[static_cast<size_t>(next)];
    }
  }
}

// Without a list, because trainings call it for each channel of statistics.
double tree_sum(std::span<const double> values) {
  const auto n = static_cast<int64_t>(values.size());
  if (n == 0) return 0;
  if (n == 1) return values[0];
  const auto left = static_cast<size_t>(tree_split(n));
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

}  // namespace lockstep
