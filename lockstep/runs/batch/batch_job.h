// Batch jobs: trainings, sweeps and functions that outlive the terminal from which they were
// submitted, on this machine or on a cluster.
//
// Each job has a folder of its own, named by its number, in a folder of jobs: `jobs` in the folder
// of the cluster's profile, otherwise in the user's folder (LOCKSTEP_HOME/jobs, or
// XDG_STATE_HOME/lockstep/jobs, or ~/.local/state/lockstep/jobs):
//
//   batch.json        what was submitted: kind, name, time, host, options, profile of the cluster
//   job.json          the resolved training job, or the job of the sweep, with absolute paths
//   call              of a function: the function and its arguments; later result, or error
//   state.json        the last recorded state
//   diary.txt         everything that the job printed
//   run/              the folder of the run (run_folder.h) or sweep (job_sweep.h), or what the
//                     function has written
//   attached/         copies of the attached files
//   executable        the executable as it was at submission (executable_copy.h)
//   environment.json  on this machine: the variables at submission, without credentials
//   lock              locked while the process of the job lives
//   client_lock       locked while a process submits, resumes, cancels, fetches or removes the job
//   cancel            exists once the job is to end
//   slurm.sh          on a cluster: the script that Slurm runs
//   slurm_job         on a cluster: Slurm's number for the job
//   executable_digest if the profile names the executable: its digest at the job's first start
//   releases          how often the job was released after a node had failed to launch it
//
// A process in a session of its own works on a job. It waits until the jobs before it have ended,
// for which it needs nothing but their locks; there is no daemon. The lock tells whether that
// process lives, so a job whose process was killed, or whose machine was restarted, is never shown
// as running. On a cluster Slurm starts and orders
// the processes, and the folder must be one that all nodes share. All functions throw FileError if
// a file cannot be read or written, and are safe to call from several processes at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/profiles/cluster_profile.h"
#include "lockstep/runs/batch/batch.h"

namespace lockstep {

enum class BatchKind { training, sweep, function };
// "training", "sweep", "function"
std::string to_string(BatchKind kind);

struct BatchRequest {
  BatchKind kind = BatchKind::training;
  std::string name = {};
  std::string initial_model = {};        // as in RunOptions; an absolute path
  int64_t workers = 0;                   // of a sweep: trials at once; 0: its default
  bool at_once = false;                  // on this machine: do not wait for the jobs before it
  std::string cluster = {};              // name of the profile, or "": this machine
  std::vector<std::string> attach = {};  // files and folders; the profile's are added
};

struct BatchJob {
  int64_t number = 0;
  std::string folder;  // of the job
  std::string name;
  std::string submitted;        // when
  std::string host, directory;  // where
  std::string executable;       // its path on the machine that runs the job
  std::string digest;           // of the executable; "": known once the process has started
  BatchRequest request = {};
  ClusterProfile profile = {};  // of the cluster, as it was at submission
  BatchState state = {};

  // Whether a process of this machine works on it.
  bool is_local() const { return request.cluster.empty() || profile.scheduler == "local"; }
  std::string file(const std::string& name_inside) const;
  std::string run_folder() const { return file("run"); }
};

// The folder that holds the batch jobs of a profile. Throws InvalidArgument if the profile names no
// folder and neither LOCKSTEP_HOME nor XDG_STATE_HOME nor HOME is set.
std::string batch_jobs_folder_of(const ClusterProfile& profile);
// The same for the name of a profile; "": this machine. Throws also what read_cluster_profile()
// throws, and Unsupported for a profile with a login, whose jobs are there.
std::string batch_jobs_folder(const std::string& cluster);

// Records a job and starts its process, which runs this executable, with the current folder and the
// current environment. `content` is what job.json or call holds. Attached files are copied; paths
// of the job's data that name an attached file, or one in an attached folder, then name the copy.
// Returns when the process holds the job's lock, within 30 seconds, or when the cluster has
// accepted the job. Throws what batch_jobs_folder() throws, InvalidArgument for files that cannot
// be attached, and Error with the process's output if it does not start. After an error there is no
// job.
int64_t submit_batch_job(std::string_view content, const BatchRequest& request);

// In the following functions `all` is the folder of jobs, and `number` that of a job there. They
// throw InvalidArgument if there is no such job.

// Starts the process of a job again that failed or was cancelled. It continues from its last
// checkpoint. Throws InvalidArgument if the job is queued, running or finished.
void resume_batch_job(const std::string& all, int64_t number);

// Throws DataError if the job is damaged.
BatchJob batch_job(const std::string& all, int64_t number);

struct BatchJobList {
  std::vector<BatchJob> jobs;  // by number
  // Number, and the error with its hint. Also what a killed process has left of a job.
  std::vector<std::pair<int64_t, std::string>> damaged;
};
// All jobs. The cluster's scheduler is asked once.
BatchJobList batch_jobs(const std::string& all);

// Asks the job to end. A training writes a checkpoint first. Returns at once. Does nothing for a
// job that has ended.
void cancel_batch_job(const std::string& all, int64_t number);

// Waits until the job has ended, at most `seconds`. Returns its state then, whether it has ended or
// not.
BatchState wait_for_batch_job(const std::string& all, int64_t number, double seconds);

// Copies the run folder of a job that has ended into the folder `out`, which must not exist or be
// empty. Throws InvalidArgument otherwise. Returns whether it first removed what an interrupted
// fetch to this folder had left.
bool fetch_batch_job(const std::string& all, int64_t number, const std::string& out);

// Removes a job that has ended, or is damaged, with everything that it holds. Throws
// InvalidArgument otherwise.
void remove_batch_job(const std::string& all, int64_t number);

// A note for submitters where the system ends the processes of a user who logs out, else "".
std::string logout_note();

}  // namespace lockstep
