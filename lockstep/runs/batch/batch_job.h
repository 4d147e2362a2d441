// Batch jobs: trainings that outlive the terminal from which they were submitted, on this machine
// or on a cluster.
//
// Each job has a folder of its own, named by its number, in the user's folder of batch jobs
// (LOCKSTEP_HOME/jobs; otherwise XDG_STATE_HOME/lockstep/jobs or ~/.local/state/lockstep/jobs):
//
//   batch.json   what was submitted: name, time, host, folder, options
//   job.json     the resolved training job, with absolute paths
//   state.json   the last recorded state
//   diary.txt    everything that the training printed
//   run/         the folder of the run, see run_folder.h
//   lock         locked while the process of the job lives
//   cancel       exists once the job is to end
//   slurm.sh     on a cluster: the script that Slurm runs, and slurm_job, Slurm's number for it
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
#include <vector>

#include "lockstep/parallel/clusters/cluster_profile.h"
#include "lockstep/runs/jobs/job_file.h"

namespace lockstep {

enum class BatchStatus {
  queued,     // it waits for the jobs before it
  running,    // it is being trained
  finished,   // its run is complete
  failed,     // an error ended it, or its process was killed
  cancelled,  // it was ended by cancel_batch_job()
};

struct BatchState {
  BatchStatus status = BatchStatus::queued;
  std::string reason = {};  // why it failed; else ""
  std::string time = {};    // when the state was recorded, "2026-11-23T20:23:14Z"
};

struct BatchRequest {
  std::string initial_model = {};  // as in RunOptions; an absolute path
  bool at_once = false;            // on this machine: do not wait for the jobs before it
  std::string cluster = {};        // name of the profile, or "": this machine
};

struct BatchJob {
  int64_t number = 0;
  std::string folder;     // of the job
  std::string name;       // of the training job
  std::string submitted;  // when
  std::string host;       // where
  BatchRequest request = {};
  ClusterProfile profile = {};  // of the cluster, as it was at submission
  BatchState state = {};

  std::string file(const std::string& name_inside) const;
  std::string run_folder() const { return file("run"); }
};

// "queued", "running", ...
std::string to_string(BatchStatus status);
bool has_ended(BatchStatus status);

// The folder that holds all batch jobs of the user. Throws InvalidArgument if neither LOCKSTEP_HOME
// nor XDG_STATE_HOME nor HOME is set.
std::string batch_jobs_folder();

// Records a job and starts its process, which runs this executable as `jobs run NUMBER` in the
// current folder with the current environment. Returns when the process holds the job's lock,
// within 30 seconds. Throws Error with what the process printed if it does not start; the job then
// does not exist.
int64_t submit_batch_job(const Job& job, const BatchRequest& request = {});

// Starts the process of a job again that failed or was cancelled. Its training continues from its
// last checkpoint. Throws InvalidArgument if the job is queued, running or finished.
void resume_batch_job(int64_t number);

// The job with this number. Throws InvalidArgument if there is none, DataError if it is damaged.
BatchJob batch_job(int64_t number);
// All jobs by number. Folders that hold no readable job are left out.
std::vector<BatchJob> batch_jobs();

// Asks the job to end. Its training writes a checkpoint first. Returns at once. Does nothing for a
// job that has ended.
void cancel_batch_job(int64_t number);

// Waits until the job has ended, at most `seconds`. Returns its state then, whether it has ended or
// not.
BatchState wait_for_batch_job(int64_t number, double seconds);

// Copies the run of a job that has ended into the folder `out`, which must not exist or be empty.
// Throws InvalidArgument otherwise.
void fetch_batch_job(int64_t number, const std::string& out);

// Removes a job that has ended with everything that it holds. Throws InvalidArgument otherwise.
void remove_batch_job(int64_t number);

// A note for submitters where the system ends the processes of a user who logs out, else "".
std::string logout_note();

}  // namespace lockstep
