// Which keys of [data] fit which data. All throw InvalidArgument, naming the key, for one that
// would have no effect; `what` is the data of the job, as in "sequences". Thread-safe.
#pragma once

namespace lockstep {

struct JobData;  // jobs/job_file.h

// Where there are no texts.
void refuse_options_of_texts(const JobData& data, const char* what);
// Where there are no images and tables.
void refuse_options_of_images(const JobData& data, const char* what);
// The columns of labels and texts.
void refuse_columns(const JobData& data, const char* what);
// Of images and tables.
void check_options_of_tables(const JobData& data);
// Of texts.
void check_options_of_texts(const JobData& data);

}  // namespace lockstep
