#include "lockstep/runs/folds.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run_data.h"

namespace lockstep {

std::pair<DatastorePtr, DatastorePtr> fold_and_rest(const DatastorePtr& all, int64_t folds,
                                                    int64_t fold, uint64_t seed) {
  if (all->size() < folds) {
    throw InvalidArgument("[data] " + all->describe() + " has " + std::to_string(all->size()) +
                          " observations, fewer than folds = " + std::to_string(folds));
  }
  std::vector<std::vector<int64_t>> of_label(std::max<size_t>(all->classes().size(), 1));
  for (int64_t i = 0; i < all->size(); ++i) {
    of_label.at(static_cast<size_t>(all->label(i))).push_back(i);
  }
  std::vector<bool> validated(static_cast<size_t>(all->size()));
  int64_t dealt = 0;
  for (size_t label = 0; label < of_label.size(); ++label) {
    const std::vector<int64_t>& members = of_label[label];
    for (const int64_t at : random_permutation({.seed = seed, .use = RandomUse::split, .a = label},
                                               std::ssize(members))) {
      const auto i = static_cast<size_t>(members[static_cast<size_t>(at)]);
      validated[i] = dealt++ % folds == fold - 1;
    }
    // Two members are never in one part.
    if (members.size() == 1 && validated[static_cast<size_t>(members[0])] &&
        !all->classes().empty()) {
      throw InvalidArgument("[data] the class `" + all->classes()[label] + "` of " +
                                all->describe() + " has one observation, which fold " +
                                std::to_string(fold) + " validates, so none is left to train",
                            "each class needs two");
    }
  }
  std::vector<int64_t> part, rest;
  for (int64_t i = 0; i < all->size(); ++i) {
    (validated[static_cast<size_t>(i)] ? part : rest).push_back(i);
  }
  return {subset(all, std::move(part)), subset(all, std::move(rest))};
}

void take_fold(RunData& data, const Job& job) {
  if (job.data.folds == 0) return;
  std::tie(data.validation, data.training) = fold_and_rest(
      data.training, job.data.folds, job.data.fold, static_cast<uint64_t>(job.training.seed));
}

}  // namespace lockstep
