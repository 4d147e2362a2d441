#include "lockstep/runs/jobs/networks/model_names.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/tables/category_names.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/train/input/targets.h"

namespace lockstep {
namespace {

constexpr size_t kMostNames = 6;  // of a sentence

std::vector<std::string> only_in(const std::vector<std::string>& all,
                                 const std::vector<std::string>& others) {
  const std::set<std::string> known(others.begin(), others.end());
  std::vector<std::string> rest;
  std::ranges::copy_if(all, std::back_inserter(rest),
                       [&](const std::string& name) { return !known.contains(name); });
  return rest;
}

bool same_names(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return a.size() == b.size() && only_in(a, b).empty() && only_in(b, a).empty();
}

// "the columns of PATH and of this job have different names: `v` in the model alone, ...", or are
// in another order if the names are the same.
std::string difference_of_names(const std::vector<std::string>& own,
                                const std::vector<std::string>& model, const std::string& what,
                                const std::string& path) {
  const std::vector<std::string> there = only_in(model, own), here = only_in(own, model);
  if (there.empty() && here.empty()) {
    const auto from = std::ranges::mismatch(own, model).in1 - own.begin();
    return "the " + what + " of " + path + " are in another order: " +
           (from > 0 ? "from number " + std::to_string(from + 1) + " on " : "") +
           list_of_some_names({model.begin() + from, model.end()}, kMostNames) +
           ", those of this job " + list_of_some_names({own.begin() + from, own.end()}, kMostNames);
  }
  const auto side = [](const std::vector<std::string>& names) {
    return names.empty() ? std::string("none") : list_of_some_names(names, kMostNames);
  };
  return "the " + what + " of " + path + " and of this job have different names: " + side(there) +
         " in the model alone, " + side(here) + " in the job alone";
}

}  // namespace

TableColumns in_order_of_model(TableColumns own, const TableColumns& model) {
  if (own.inputs.size() != model.inputs.size()) return own;
  for (size_t k = 0; k < own.inputs.size(); ++k) {
    if (same_names(own.inputs[k], model.inputs[k])) own.inputs[k] = model.inputs[k];
  }
  return own;
}

std::vector<std::string> notes_of_columns(const TableColumns& own, const TableColumns& model,
                                          const std::string& path, const Network& network,
                                          bool head) {
  std::vector<std::string> notes;
  const std::vector<NetworkValue> inputs = network.inputs();
  const size_t count = own.inputs.size() == model.inputs.size() ? own.inputs.size() : 0;
  for (size_t k = 0; k < std::min(count, inputs.size()); ++k) {
    const auto &here = own.inputs[k], &there = model.inputs[k];
    const bool tokens = inputs[k].type == DType::i32;
    // An input of another size takes no values. A vocabulary may leave room.
    if (here.empty() || there.empty() || (!tokens && here.size() != there.size())) continue;
    if (here == there) continue;
    const std::string what = tokens ? "tokens" : "columns";
    notes.push_back(difference_of_names(here, there, what, path) + ": values of " + what +
                    " are taken by position");
  }
  if (head && !own.target.empty() && !model.target.empty() && own.target != model.target) {
    const bool several = network_parts(network).size() > 1;
    notes.push_back(difference_of_names(own.target, model.target, "targets", path) +
                    (several ? ": each output takes the values of its layer"
                             : ": values of the last layer are taken by position"));
  }
  return notes;
}

std::string note_of_classes(const std::vector<std::string>& own,
                            const std::vector<std::string>& model, const std::string& path) {
  if (own.empty() || model.empty() || own == model) return "";
  return difference_of_names(own, model, "classes", path) +
         ": values of the last layer are taken by position";
}

void check_order_of_targets(const Network& network, const JobData& data,
                            const std::vector<std::string>& model, const std::string& path) {
  if (network_parts(network).size() < 2 || data.target_columns.empty()) return;
  const std::vector<std::string> own = with_categories(data.target_columns, data.categories, model);
  if (own == model || !same_names(own, model)) return;
  throw InvalidArgument(
      "[data] target_columns: the targets of " + path + " are " +
          list_of_some_names(model, kMostNames) + ", those of this job " +
          list_of_some_names(own, kMostNames) +
          ", but each output of the network keeps what it learned",
      "give target_columns in the order of the model, and the network's outputs likewise");
}

}  // namespace lockstep
