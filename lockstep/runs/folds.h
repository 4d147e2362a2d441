// Folds for cross-validation.
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

struct Job;      // jobs/job_file.h
struct RunData;  // run_data.h

// Part number `fold` (from 1) of `folds` parts of the data, and all other parts together. The
// observations of each label are dealt to the parts in a random order, and those of the next label
// go on with the next part, so sizes differ by at most one, of each label, too. Parts keep the
// order of the listing. Throws InvalidArgument for fewer observations than folds, and for a label
// whose observations are all in the one part. Thread-safe.
std::pair<DatastorePtr, DatastorePtr> fold_and_rest(const DatastorePtr& all, int64_t folds,
                                                    int64_t fold, uint64_t seed);

// Validates the job's fold of the training data and trains with the rest, if the job has folds.
void take_fold(RunData& data, const Job& job);

}  // namespace lockstep
