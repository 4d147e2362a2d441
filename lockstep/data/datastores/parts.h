// Parts of a listing, of which one is trained and others are held out: by class, by groups that
// stay together, or by time. All are functions of their arguments alone. Thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// The number of the part of each observation.
using Parts = std::vector<int64_t>;

// The parts of split_each_label(): number fractions.size() is the rest. Throws InvalidArgument for
// fractions outside [0, 1] or that add up to more than 1.
Parts parts_of_each_label(const Datastore& store, const std::vector<double>& fractions,
                          uint64_t seed);

// Folds 0 to folds - 1. The observations of each label are dealt to the folds in a random order,
// and those of the next label go on with the next fold, so sizes differ by at most one, of each
// label, too.
Parts folds_of_each_label(const Datastore& store, int64_t folds, uint64_t seed);

// Deals whole groups, the largest first and equal ones in a random order, so that each part has
// about its share of the observations and of each label. `groups`: the number of the group of each
// observation, from 0 without gaps. A part with the share 0 is empty; others may be if there are
// few groups, but not where all shares are equal and there are as many groups as parts. Throws
// InvalidArgument for another number of groups than observations.
Parts parts_of_groups(const Datastore& store, const std::vector<int64_t>& groups,
                      const std::vector<double>& shares, uint64_t seed);

// A number, or seconds since 1970 and nanoseconds of a date.
struct RowTime {
  double value = 0;
  int64_t nanoseconds = 0;
  bool date = false;

  friend auto operator<=>(const RowTime&, const RowTime&) = default;
};
// Reads a finite number, or a date of ISO 8601: 2024-02-29, 2024-02-29T23:59:59.5Z,
// "2024-02-29 23:59+01:00". Nothing for other text.
std::optional<RowTime> parse_row_time(std::string_view text);

// Part fractions.size() - 1 has the last observations by time, the one before it those before, and
// part fractions.size() has the earliest ones, the rest. Part p has round-half-up(fraction p x n)
// observations, except that equal times are in one part: then it begins after them, or with them if
// it would be empty.
Parts parts_by_time(const std::vector<RowTime>& times, const std::vector<double>& fractions);

// Puts each observation into the part of the one that `first` names, which may be itself.
void keep_together(Parts& parts, const std::vector<int64_t>& first);

// The indices of a part, ascending.
std::vector<int64_t> indices_of_part(const Parts& parts, int64_t part);

}  // namespace lockstep
