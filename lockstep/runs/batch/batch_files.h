// The files of a batch job: what is recorded in its folder.
#pragma once

#include <map>
#include <string>

#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/runs/folders/run_folder.h"

namespace lockstep {

inline constexpr const char* batch_state_name = "state.json";
inline constexpr const char* batch_diary_name = "diary.txt";
inline constexpr const char* batch_lock_name = "lock";
inline constexpr const char* batch_client_lock_name = "client_lock";
inline constexpr const char* batch_cancel_name = "cancel";
inline constexpr const char* batch_training_name = "job.json";
inline constexpr const char* batch_call_name = "call";
inline constexpr const char* batch_result_name = "result";
inline constexpr const char* batch_error_name = "error";
inline constexpr const char* batch_attached_name = "attached";
inline constexpr const char* batch_executable_name = "executable";
inline constexpr const char* batch_environment_name = "environment.json";
inline constexpr const char* batch_script_name = "slurm.sh";
inline constexpr const char* batch_slurm_job_name = "slurm_job";
inline constexpr const char* batch_releases_name = "releases";

// What Slurm knows of its jobs, asked once for all jobs of a login. One thread at a time.
class SlurmQueue {
 public:
  // The state is "" if Slurm does not know the job. Throws what the commands of Slurm throw; after
  // an error Slurm is not asked again.
  SlurmState state(const std::string& login, const std::string& job);

 private:
  struct Known {
    std::map<std::string, SlurmState> jobs;
    std::string error;
  };
  std::map<std::string, Known> logins_;
};

// The number in the name of a job's folder; 0 if the name is not a number of a job.
int64_t batch_number_of(const std::string& name);

// Reads the job in a folder, without its state. Throws DataError if it is damaged.
BatchJob read_batch_description(const std::string& folder);
// With its state.
BatchJob read_batch_job(const std::string& folder, SlurmQueue& queue, bool is_client = false);
void write_batch_description(const BatchJob& job);
void write_batch_state(const BatchJob& job, BatchStatus status, const std::string& reason = {});
// Slurm's number of the job in a folder, or "" if it is not one of a cluster.
std::string slurm_job_of(const std::string& folder);
// The state of a job: what is recorded, whether its process lives, and for jobs of a cluster that
// have not ended what Slurm knows. A job that Slurm holds because its node failed to launch it is
// released, up to three times. `is_client`: the caller holds the lock of lock_batch_job().
BatchState batch_state(const BatchJob& job, SlurmQueue& queue, bool is_client = false);

// The lock of a process that submits, resumes, cancels, fetches or removes a job. Waits for other
// processes. Throws Timeout after 90 seconds.
FileLock lock_batch_job(const std::string& folder);

}  // namespace lockstep
