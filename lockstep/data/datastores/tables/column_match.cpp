#include "lockstep/data/datastores/tables/column_match.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

constexpr size_t most_shown = 5;

// The names of `all` that are not in `indices`.
std::vector<std::string> names_without(const std::vector<std::string>& all,
                                       const std::unordered_map<std::string, size_t>& indices) {
  std::vector<std::string> rest;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rest),
               [&](const std::string& name) { return !indices.contains(name); });
  return rest;
}

std::unordered_map<std::string, size_t> indices_of_names(const std::vector<std::string>& names) {
  std::unordered_map<std::string, size_t> indices;
  for (size_t i = 0; i < names.size(); ++i) indices.emplace(names[i], i);
  return indices;
}

[[noreturn]] void refuse_columns(const Datastore& store, const std::vector<std::string>& missing,
                                 const std::vector<std::string>& unknown,
                                 const std::vector<std::string>& expected) {
  std::string what;
  if (!missing.empty()) {
    what = list_of_some_names(missing, most_shown) +
           (missing.size() > 1 ? " are missing" : " is missing");
  }
  if (!unknown.empty()) {
    what += (what.empty() ? "" : ", and ") + list_of_some_names(unknown, most_shown) +
            (unknown.size() > 1 ? " were" : " was") + " not there";
  }
  std::string hint = "the columns of the training are " + list_of_some_names(expected, most_shown);
  if (missing.empty()) {
    hint = "leave the column out, or train with it";
  } else if (!unknown.empty()) {
    for (const std::string& name : unknown) {
      const std::string near = nearest_name(name, missing);
      if (near.empty()) continue;
      hint = "did you mean `" + near + "` by `" + name + "`?";
      break;
    }
  }
  throw InvalidArgument(
      "[columns] " + store.describe() + " has different columns than the training data: " + what,
      hint);
}

}  // namespace

DatastorePtr with_columns(DatastorePtr store, size_t input,
                          const std::vector<std::string>& expected) {
  if (store == nullptr) throw InvalidArgument("[columns] the datastore is null");
  const ExampleSpec spec = store->spec();
  const bool of_target = input == spec.inputs.size();
  if (expected.empty() || input > spec.inputs.size() || (of_target && !spec.target)) return store;
  const ValueSpec& value = of_target ? *spec.target : spec.inputs[input];
  if (value.columns == expected || value.kind != ValueKind::array) return store;
  std::vector<size_t> order(expected.size());
  if (value.columns.empty()) {
    // Other shapes are refused with all shapes, see train/input/targets.h.
    if (value.shape != Shape{static_cast<int64_t>(expected.size())}) return store;
    std::iota(order.begin(), order.end(), size_t{0});
    return reorder(store, input, std::move(order),
                   store->describe() +
                       " has no names of columns: they are taken in the order of the training, " +
                       list_of_some_names(expected, most_shown));
  }
  const auto given = indices_of_names(value.columns), wanted = indices_of_names(expected);
  const std::vector<std::string> missing = names_without(expected, given),
                                 unknown = names_without(value.columns, wanted);
  if (!missing.empty() || !unknown.empty()) refuse_columns(*store, missing, unknown, expected);
  for (size_t k = 0; k < expected.size(); ++k) order[k] = given.at(expected[k]);
  return reorder(store, input, std::move(order), store->describe() + kMatchedByName);
}

}  // namespace lockstep
