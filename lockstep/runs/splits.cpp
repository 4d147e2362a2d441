#include "lockstep/runs/splits.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/images/copies.h"
#include "lockstep/data/datastores/parts.h"
#include "lockstep/data/datastores/tables/table_column.h"
#include "lockstep/data/datastores/tables/table_text.h"
#include "lockstep/runs/data_options.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run_data.h"
#include "lockstep/runs/sources/target_table.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/s3_files.h"
#include "lockstep/train/input/targets.h"

namespace lockstep {
namespace {

// What decides about the split, for each observation; empty: nothing does.
struct SplitKeys {
  std::vector<int64_t> groups;  // their numbers, from 0
  std::vector<RowTime> times;
  std::vector<int64_t> first;  // the first of the copies of an image
};

int64_t count_of(const std::vector<int64_t>& groups) {
  return groups.empty() ? 0 : *std::ranges::max_element(groups) + 1;
}

// Numbers texts from 0, in the order of their first use.
template <class Key>
std::vector<int64_t> numbered(const std::vector<Key>& keys) {
  std::map<Key, int64_t> numbers;
  std::vector<int64_t> all;
  for (const Key& key : keys) {
    all.push_back(numbers.emplace(key, static_cast<int64_t>(numbers.size())).first->second);
  }
  return all;
}

[[noreturn]] void refuse_field(const std::string& path, int64_t line, const std::string& column,
                               const std::string& what, const std::string& hint = {}) {
  throw DataError(
      "[data] " + path + ", line " + std::to_string(line) + ", column `" + column + "`: " + what,
      hint);
}

// The fields of a column, one for each observation.
TableColumn column_of(const RunData& data, const JobData& job, const std::string& name,
                      const std::string& option) {
  const std::string path = split_table(job);
  return path == job.train[0] ? table_column(storage::files_of(path), path, name, option)
                              : column_of_target_table(*data.training, path, name, option);
}

std::vector<int64_t> groups_of(const std::string& path, const std::string& name,
                               const TableColumn& column) {
  for (size_t i = 0; i < column.fields.size(); ++i) {
    if (!column.fields[i].empty()) continue;
    refuse_field(path, column.lines[i], name, "the group is missing",
                 "give a row that has no others in its group a name that no other row has");
  }
  return numbered(column.fields);
}

std::vector<RowTime> times_of(const std::string& path, const std::string& name,
                              const TableColumn& column) {
  std::vector<RowTime> times;
  for (size_t i = 0; i < column.fields.size(); ++i) {
    const std::string& field = column.fields[i];
    if (field.empty()) refuse_field(path, column.lines[i], name, "the time is missing");
    const std::optional<RowTime> time = parse_row_time(field);
    const std::string what = shown_field(field);
    if (!time) {
      refuse_field(path, column.lines[i], name, what + " is neither a number nor a date",
                   "dates are written as 2024-02-29 or 2024-02-29T23:59:59Z");
    }
    if (!times.empty() && time->date != times.front().date) {
      refuse_field(path, column.lines[i], name,
                   what + (time->date ? " is a date, but other rows have numbers"
                                      : " is a number, but other rows have dates"));
    }
    times.push_back(*time);
  }
  return times;
}

// Groups with copies of each other become one.
std::vector<int64_t> united(const std::vector<int64_t>& groups, const std::vector<int64_t>& first) {
  std::vector<int64_t> parents(static_cast<size_t>(count_of(groups)));
  std::iota(parents.begin(), parents.end(), int64_t{0});
  const auto root = [&](int64_t group) {
    while (parents[static_cast<size_t>(group)] != group) {
      group = parents[static_cast<size_t>(group)];
    }
    return group;
  };
  for (size_t i = 0; i < groups.size(); ++i) {
    const int64_t a = root(groups[static_cast<size_t>(first[i])]), b = root(groups[i]);
    parents[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }
  std::vector<int64_t> all;
  for (const int64_t group : groups) all.push_back(root(group));
  return numbered(all);
}

// Copies get the time of the last of them.
void share_times(std::vector<RowTime>& times, const std::vector<int64_t>& first) {
  std::vector<RowTime> last = times;
  for (size_t i = 0; i < times.size(); ++i) {
    RowTime& latest = last[static_cast<size_t>(first[i])];
    latest = std::max(latest, times[i]);
  }
  for (size_t i = 0; i < times.size(); ++i) times[i] = last[static_cast<size_t>(first[i])];
}

// Copies of images, and a notice of them. Empty: there are none.
std::vector<int64_t> copies_of(RunData& data, const Job& job) {
  const std::string& folder = job.data.train[0];
  const DatastorePtr& images = data.training;
  if (images->size() == 0) return {};
  const bool files =
      !storage::is_address(folder) && local_files().exists(join_path(folder, images->name(0)));
  if (!files && !have_facts(*images)) {
    data.notices.push_back("copies of images in " + folder +
                           " are not looked for, because all of it would be read: their digests "
                           "are known from an index (`lockstep upload` makes one), without "
                           "orientation and scaled_decoding");
    return {};
  }
  ThreadPool pool(static_cast<int>(job.training.resolved().threads));
  std::vector<int64_t> first = first_copies(*images, folder, pool);
  int64_t copies = 0;
  for (size_t i = 0; i < first.size(); ++i) copies += first[i] != static_cast<int64_t>(i) ? 1 : 0;
  if (copies == 0) return {};
  data.notices.push_back(counted(copies, "image is a copy", "images are copies") +
                         " of others with the same bytes; copies are kept on one side of a split");
  return first;
}

SplitKeys keys_of(RunData& data, const Job& job, bool images) {
  const std::string path = split_table(job.data);
  const std::string &group = job.data.group_column, &time = job.data.time_column;
  SplitKeys keys;
  if (!group.empty()) {
    keys.groups = groups_of(path, group, column_of(data, job.data, group, "group_column"));
  }
  if (!time.empty()) {
    keys.times = times_of(path, time, column_of(data, job.data, time, "time_column"));
  }
  if (images) keys.first = copies_of(data, job);
  if (keys.first.empty()) return keys;
  // Groups and times that respect copies leave nothing to keep together.
  if (!keys.groups.empty()) keys.groups = united(keys.groups, keys.first);
  if (!keys.times.empty()) share_times(keys.times, keys.first);
  if (!keys.groups.empty() || !keys.times.empty()) keys.first.clear();
  return keys;
}

// Where the split puts nothing.
void require_part(const DatastorePtr& part, const char* what, const Datastore& all,
                  const SplitKeys& keys) {
  if (part->size() > 0) return;
  const std::string groups =
      keys.groups.empty() ? "" : ", which have " + counted(count_of(keys.groups), "group");
  throw InvalidArgument("[data] " + std::string(what) + " leaves no " +
                            (has_image_inputs(all) ? "image" : "observation") + " of the " +
                            std::to_string(all.size()) + " of " + all.describe() + groups,
                        keys.times.empty() ? "" : "rows of one time are kept on one side");
}

// Returns the indices of what is left.
std::vector<int64_t> take_fractions(RunData& data, const Job& job, const SplitKeys& keys) {
  const double validation = job.data.validation_fraction, test = job.data.test_fraction;
  const DatastorePtr all = data.training;
  const auto seed = static_cast<uint64_t>(job.training.seed);
  Parts parts;
  if (!keys.times.empty()) {
    parts = parts_by_time(keys.times, {validation, test});
  } else if (!keys.groups.empty()) {
    parts = parts_of_groups(*all, keys.groups, {validation, test, 1 - validation - test}, seed);
  } else {
    parts = parts_of_each_label(*all, {validation, test}, seed);
  }
  if (!keys.first.empty()) keep_together(parts, keys.first);
  const auto part = [&](int64_t number, const char* what) {
    DatastorePtr store = subset(all, indices_of_part(parts, number));
    require_part(store, what, *all, keys);
    return store;
  };
  if (validation > 0) data.validation = part(0, "validation_fraction");
  if (test > 0) data.test = part(1, "test_fraction");
  data.training = part(2, "splitting");
  return indices_of_part(parts, 2);
}

// A class that is in the validated fold alone cannot be learned.
void check_classes_of_fold(const Datastore& all, const Datastore& rest, int64_t fold) {
  const std::vector<int64_t> counts = count_each_label(all), left = count_each_label(rest);
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0 || left[c] > 0) continue;
    const std::string& name = all.classes()[c];
    throw InvalidArgument("[data] the class `" + name + "` of " + all.describe() + " has " +
                              counted(counts[c], "observation") + ", which fold " +
                              std::to_string(fold) + " validates, so none is left to train",
                          counts[c] == 1 ? "each class needs two"
                                         : "each class needs two groups, or images that are not "
                                           "copies of each other");
  }
}

void take_fold(RunData& data, const Job& job, const SplitKeys& keys,
               const std::vector<int64_t>& indices) {
  const int64_t folds = job.data.folds, fold = job.data.fold;
  const DatastorePtr all = data.training;
  const auto seed = static_cast<uint64_t>(job.training.seed);
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument("[data] " + all->describe() + " has " + what +
                          ", fewer than folds = " + std::to_string(folds));
  };
  if (all->size() < folds) refuse(counted(all->size(), "observation"));
  // Those of the observations that are left.
  const auto chosen = [&](const std::vector<int64_t>& keys_of_all) {
    std::vector<int64_t> some;
    for (const int64_t i : indices) some.push_back(keys_of_all[static_cast<size_t>(i)]);
    return numbered(some);
  };
  Parts parts;
  if (!keys.groups.empty()) {
    const std::vector<int64_t> groups = chosen(keys.groups);
    if (count_of(groups) < folds) refuse(counted(count_of(groups), "group"));
    const std::vector<double> shares(static_cast<size_t>(folds), 1 / static_cast<double>(folds));
    parts = parts_of_groups(*all, groups, shares, seed);
  } else {
    parts = folds_of_each_label(*all, folds, seed);
  }
  if (!keys.first.empty()) {
    std::map<int64_t, int64_t> index_of_copy;  // of the first copy
    std::vector<int64_t> first;
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t copy = keys.first[static_cast<size_t>(indices[i])];
      first.push_back(index_of_copy.emplace(copy, static_cast<int64_t>(i)).first->second);
    }
    keep_together(parts, first);
  }
  std::vector<int64_t> validated, rest;
  for (size_t i = 0; i < parts.size(); ++i) {
    (parts[i] == fold - 1 ? validated : rest).push_back(static_cast<int64_t>(i));
  }
  if (validated.empty()) {
    throw InvalidArgument("[data] fold " + std::to_string(fold) + " of " + all->describe() +
                              " is empty, because its images are copies of others",
                          "choose fewer folds");
  }
  data.validation = subset(all, std::move(validated));
  data.training = subset(all, std::move(rest));
  check_classes_of_fold(*all, *data.training, fold);
}

std::vector<int64_t> all_indices(const Datastore& store) {
  std::vector<int64_t> all(static_cast<size_t>(store.size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

}  // namespace

std::vector<std::string> columns_without_features(const JobData& data) {
  std::vector<std::string> all = data.ignored_columns;
  for (const std::string* name : {&data.group_column, &data.time_column}) {
    if (!name->empty() && std::ranges::find(all, *name) == all.end()) all.push_back(*name);
  }
  return all;
}

void split_data(RunData& data, const Job& job, bool images) {
  const JobData& d = job.data;
  const bool own = split_table(d) == d.train[0];
  const std::string column = " of " + split_table(d), use = own ? "feature" : "target";
  if (!d.group_column.empty()) {
    data.notices.push_back("the column `" + d.group_column + "`" + column +
                           " names groups, and is not a " + use);
  }
  if (!d.time_column.empty()) {
    data.notices.push_back("the column `" + d.time_column + "`" + column +
                           " is the time by which rows are held out, and is not a " + use);
  }
  const bool fractions = d.validation_fraction > 0 || d.test_fraction > 0;
  if (!fractions && d.folds == 0) return;
  const SplitKeys keys = keys_of(data, job, images);
  std::vector<int64_t> left = all_indices(*data.training);
  if (fractions) left = take_fractions(data, job, keys);
  if (d.folds > 0) take_fold(data, job, keys, left);
}

void take_fold_of_texts(RunData& data, const Job& job) {
  if (job.data.folds > 0) take_fold(data, job, {}, all_indices(*data.training));
}

}  // namespace lockstep
