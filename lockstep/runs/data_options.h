// Which keys of [data] fit which data. All throw InvalidArgument, naming the key, for one that
// would have no effect; `what` is the data of the job, as in "sequences". Thread-safe.
#pragma once

#include <string>

namespace lockstep {

struct JobData;  // jobs/job_file.h

// The table that has group_column and time_column: the first input, or else the targets of images.
// It need not be a table.
std::string split_table(const JobData& data);

// Where there are no texts.
void refuse_options_of_texts(const JobData& data, const char* what);
// Where there are no images and tables.
void refuse_options_of_images(const JobData& data, const char* what);
// The columns of labels and texts.
void refuse_columns(const JobData& data, const char* what);
// Of images and tables.
void check_options_of_tables(const JobData& data);
// Of sequences of numbers.
void check_options_of_sequences(const JobData& data);
// Of texts.
void check_options_of_texts(const JobData& data);
// Of any data.
void check_folds(const JobData& data);

}  // namespace lockstep
