#include "lockstep/data/datastores/parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"

namespace lockstep {
namespace {

// The key of the order of groups; that of observations has b = 0.
constexpr uint64_t kOfGroups = 1;

void check_fractions(const std::vector<double>& fractions) {
  double total = 0;
  for (const double f : fractions) {
    if (!(f >= 0 && f <= 1)) {
      throw InvalidArgument("[split_each_label] a fraction is " + std::to_string(f) +
                            ", but must be between 0 and 1");
    }
    total += f;
  }
  if (total > 1 + 1e-9) {
    throw InvalidArgument("[split_each_label] the fractions add up to " + std::to_string(total) +
                          ", which is more than 1");
  }
}

std::vector<std::vector<int64_t>> members_of_labels(const Datastore& store) {
  std::vector<std::vector<int64_t>> members(std::max<size_t>(store.classes().size(), 1));
  for (int64_t i = 0; i < store.size(); ++i) {
    members.at(static_cast<size_t>(store.label(i))).push_back(i);
  }
  return members;
}

// The members of a label in a random order.
std::vector<int64_t> shuffled(const std::vector<int64_t>& members, uint64_t seed, size_t label) {
  std::vector<int64_t> order = random_permutation(
      {.seed = seed, .use = RandomUse::split, .a = label}, static_cast<int64_t>(members.size()));
  for (int64_t& at : order) at = members[static_cast<size_t>(at)];
  return order;
}

int64_t share_of(double fraction, int64_t n) {
  return static_cast<int64_t>(std::floor(fraction * static_cast<double>(n) + 0.5));
}

// The observations of a group, or of a part, in all and of each label.
struct Counts {
  int64_t all = 0;
  std::map<size_t, int64_t> labels;

  void add(const Counts& more) {
    all += more.all;
    for (const auto& [label, count] : more.labels) labels[label] += count;
  }
  int64_t of(size_t label) const {
    const auto found = labels.find(label);
    return found == labels.end() ? 0 : found->second;
  }
};

// How far a part with the share of `total` would be filled after half of the group: the method of
// Webster and Sainte-Lague, which gives each part its share.
double filled(int64_t have, int64_t group, int64_t total, double share) {
  return (static_cast<double>(have) + 0.5 * static_cast<double>(group)) /
         (share * static_cast<double>(total));
}

// The mean over the group's observations, by label and in all.
double filled(const Counts& have, const Counts& group, const Counts& total, double share) {
  double sum = filled(have.all, group.all, total.all, share);
  for (const auto& [label, count] : group.labels) {
    sum += filled(have.of(label), count, total.of(label), share) *
           (static_cast<double>(count) / static_cast<double>(group.all));
  }
  return sum;
}

}  // namespace

Parts parts_of_each_label(const Datastore& store, const std::vector<double>& fractions,
                          uint64_t seed) {
  check_fractions(fractions);
  Parts parts(static_cast<size_t>(store.size()));
  const auto members = members_of_labels(store);
  for (size_t label = 0; label < members.size(); ++label) {
    const std::vector<int64_t> order = shuffled(members[label], seed, label);
    const auto n = static_cast<int64_t>(order.size());
    int64_t next = 0;
    for (size_t p = 0; p <= fractions.size(); ++p) {
      int64_t count = n - next;
      if (p < fractions.size()) count = std::min(count, share_of(fractions[p], n));
      for (const int64_t end = next + count; next < end; ++next) {
        parts[static_cast<size_t>(order[static_cast<size_t>(next)])] = static_cast<int64_t>(p);
      }
    }
  }
  return parts;
}

Parts folds_of_each_label(const Datastore& store, int64_t folds, uint64_t seed) {
  Parts parts(static_cast<size_t>(store.size()));
  const auto members = members_of_labels(store);
  int64_t dealt = 0;
  for (size_t label = 0; label < members.size(); ++label) {
    for (const int64_t i : shuffled(members[label], seed, label)) {
      parts[static_cast<size_t>(i)] = dealt++ % folds;
    }
  }
  return parts;
}

Parts parts_of_groups(const Datastore& store, const std::vector<int64_t>& groups,
                      const std::vector<double>& shares, uint64_t seed) {
  if (static_cast<int64_t>(groups.size()) != store.size()) {
    throw InvalidArgument("[split] " + std::to_string(groups.size()) + " groups are given for " +
                          std::to_string(store.size()) + " observations");
  }
  if (groups.empty()) return {};
  std::vector<Counts> each(static_cast<size_t>(*std::ranges::max_element(groups)) + 1);
  Counts total;
  for (int64_t i = 0; i < store.size(); ++i) {
    const Counts one{1, {{static_cast<size_t>(store.label(i)), 1}}};
    each[static_cast<size_t>(groups[static_cast<size_t>(i)])].add(one);
    total.add(one);
  }
  std::vector<int64_t> order = random_permutation(
      {.seed = seed, .use = RandomUse::split, .b = kOfGroups}, static_cast<int64_t>(each.size()));
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return each[static_cast<size_t>(a)].all > each[static_cast<size_t>(b)].all;
  });
  std::vector<Counts> have(shares.size());
  std::vector<int64_t> part_of(each.size());
  for (const int64_t g : order) {
    const Counts& group = each[static_cast<size_t>(g)];
    double least = std::numeric_limits<double>::infinity();
    size_t best = 0;
    for (size_t p = 0; p < shares.size(); ++p) {
      if (shares[p] <= 0) continue;
      const double now = filled(have[p], group, total, shares[p]);
      if (now < least) {
        least = now;
        best = p;
      }
    }
    have[best].add(group);
    part_of[static_cast<size_t>(g)] = static_cast<int64_t>(best);
  }
  Parts parts;
  for (const int64_t g : groups) parts.push_back(part_of[static_cast<size_t>(g)]);
  return parts;
}

Parts parts_by_time(const std::vector<RowTime>& times, const std::vector<double>& fractions) {
  check_fractions(fractions);
  const auto n = static_cast<int64_t>(times.size());
  std::vector<size_t> order(times.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return times[a] < times[b]; });
  // Whether the observations before and after a cut have one time.
  const auto ties = [&](int64_t cut) {
    if (cut <= 0 || cut >= n) return false;
    return times[order[static_cast<size_t>(cut - 1)]] == times[order[static_cast<size_t>(cut)]];
  };
  Parts parts(times.size(), static_cast<int64_t>(fractions.size()));
  int64_t end = n;
  for (size_t p = fractions.size(); p-- > 0;) {
    const int64_t count = std::min(end, share_of(fractions[p], n));
    if (count == 0) continue;
    int64_t cut = end - count;
    while (cut < end && ties(cut)) ++cut;
    if (cut == end) {
      cut = end - count;
      while (ties(cut)) --cut;
    }
    for (int64_t i = cut; i < end; ++i) {
      parts[order[static_cast<size_t>(i)]] = static_cast<int64_t>(p);
    }
    end = cut;
  }
  return parts;
}

void keep_together(Parts& parts, const std::vector<int64_t>& first) {
  const Parts before = parts;
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = before.at(static_cast<size_t>(first.at(i)));
}

std::vector<int64_t> indices_of_part(const Parts& parts, int64_t part) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == part) indices.push_back(static_cast<int64_t>(i));
  }
  return indices;
}

}  // namespace lockstep
