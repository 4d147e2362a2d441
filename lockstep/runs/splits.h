// How the data of a job are split: validation and test data are held out from the training data,
// and folds are validated.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

struct Job;  // jobs/job_file.h
struct JobData;
struct RunData;  // run_data.h

// The columns of tables that are not features or targets: ignored_columns, group_column and
// time_column.
std::vector<std::string> columns_without_features(const JobData& data);

// Splits data.training, the first input's listing, as validation_fraction, test_fraction and folds
// say: first validation, then test; folds are those of the rest. Random splits have equal shares of
// each class. With group_column no group is on two sides; with time_column the last rows are held
// out; both are columns of split_table(). Images with the same bytes (`images`: the data is a
// folder of images) stay on one side, that of the first of them: their groups become one, and their
// time is the latest. data.notices says how many. Throws InvalidArgument for a side without
// observations, for fewer observations or groups than folds, and for a class that is only in the
// validated fold; DataError for a group or time that is missing.
void split_data(RunData& data, const Job& job, bool images);

// Validates the job's fold of data.training, which are texts with classes, if it has folds.
void take_fold_of_texts(RunData& data, const Job& job);

}  // namespace lockstep
