// The files of a batch job: what is recorded in its folder.
#pragma once

#include <string>

#include "lockstep/runs/batch/batch_job.h"

namespace lockstep {

inline constexpr const char* batch_description_name = "batch.json";
inline constexpr const char* batch_state_name = "state.json";
inline constexpr const char* batch_diary_name = "diary.txt";
inline constexpr const char* batch_lock_name = "lock";
inline constexpr const char* batch_cancel_name = "cancel";
inline constexpr const char* batch_training_name = "job.json";
inline constexpr const char* batch_script_name = "slurm.sh";
inline constexpr const char* batch_slurm_job_name = "slurm_job";

// Reads the job in a folder. Throws DataError if it is damaged.
BatchJob read_batch_job(const std::string& folder, int64_t number);
void write_batch_description(const BatchJob& job);
void write_batch_state(const BatchJob& job, BatchStatus status, const std::string& reason = {});
// Slurm's number of the job in a folder, or "" if it is not one of a cluster.
std::string slurm_job_of(const std::string& folder);
// The state of the job in a folder: what is recorded, whether its process lives, and for jobs of a
// cluster that have not ended what Slurm knows.
BatchState batch_state(const std::string& folder);

}  // namespace lockstep
