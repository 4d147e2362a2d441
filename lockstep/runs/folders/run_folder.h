// The folder of a run.
//
//   job.json                the resolved options, for read_job()
//   receipt.jsonl           one line for each iteration, see train/state/receipt.h
//   log.jsonl               the same with times, and the validations
//   checkpoints/            see train/state/checkpoint.h
//   observations            digests of the data, see train/input/observation_list.h
//   initial.safetensors     the network before the first iteration (optional)
//   confusion.json          confusion of validation and test images, if labels are learned and the
//                           run has finished: see ConfusionMatrix::to_json()
//   predictions.json        some predictions of the finished run, see predictions.h
//   report.html             the report, if the command wrote one
//   model.safetensors       the network: trained if the run has finished, of the last iteration if
//                           it was stopped, with the last finite values if it failed
//   state.json              the state of the run, see run_state.h
//   stop                    a request to stop, see stop_request.h
//   run.json                where, when and on what it was trained, and its scores: run_facts.h
//   notes.json              tags and note of the user, if there are any
//   lock                    locked while a process works in the folder
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/runs/folders/run_state.h"

namespace lockstep {

struct Job;  // jobs/job_file.h

inline constexpr const char* run_state_name = "state.json";
inline constexpr const char* run_lock_name = "lock";
// A folder that contains one of these files holds a run.
inline constexpr const char* run_file_names[] = {"job.json", run_model_name, "receipt.jsonl",
                                                 "log.jsonl", "checkpoints"};

// The folder of a batch job has a job.json and a state.json too; its run is in a folder inside.
inline constexpr const char* batch_description_name = "batch.json";
inline bool is_batch_folder(FileSystem& files, const std::string& folder) {
  return files.exists(join_path(folder, batch_description_name));
}

// A run folder that this process owns until destruction. Not thread-safe.
class RunFolder {
 public:
  // Makes the folder if it is missing, locks it and records the state `running`. Without `resume`
  // the folder must hold no run. With `resume`, an existing run must be of the same job (see
  // job_difference()), and a folder without a run starts a new one. `extra` are additional entries
  // of job.json. Throws FileError, and InvalidArgument with a hint if another process works in the
  // folder or it holds another run. `files` is used to check and make the folder. Files inside it
  // are local files.
  RunFolder(FileSystem& files, std::string path, const Job& job,
            const nlohmann::ordered_json& extra, bool resume);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  // For all access to files in the folder: see files_anchored_in().
  FileSystem& files() const { return *inside_; }
  std::string file(const std::string& name) const { return join_path(path_, name); }
  // Whether the folder already held a run.
  bool resumed() const { return resumed_; }
  // Updates job.json if the run continues with another end than before (see job_difference.h), or
  // with its initial model in another file. Call it after the trainer has accepted the options.
  // Throws FileError.
  void note_end() const;
  // Records the state of the run (see run_state.h). Throws FileError, also if the folder's name now
  // leads to another folder.
  void note(RunStatus status, const std::string& reason = {}, int64_t iteration = 0) const;
  // Records the state again that the run had before this process.
  void note_as_before() const;

 private:
  void adopt(const nlohmann::ordered_json& description, bool resume);

  FileSystem& files_;
  std::string path_;
  std::unique_ptr<FileSystem> inside_;
  std::optional<FileLock> lock_;
  RunState before_;
  bool resumed_ = false;
  std::string new_description_;  // the new content of job.json; "": unchanged
};

// The names of the columns of a run's tables (`columns` of its job.json); none for a run without
// tables or of an earlier version, and if there is no run. Throws FileError.
TableColumns run_columns(FileSystem& files, const std::string& folder);

// The model, run or checkpoint that the run in a folder started from (`initial_model_file` of its
// job.json); "" for none, for a run of an earlier version, and if there is no run. Throws
// FileError.
std::string run_initial_model(FileSystem& files, const std::string& folder);
// The digest of that model's file when the run began; "" if none is noted. Throws FileError.
std::string run_initial_model_digest(FileSystem& files, const std::string& folder);

// Gives a job that does not say how often to validate what the run in the folder has, if there is
// one: earlier versions had another default. Throws FileError.
void keep_validation_frequency(FileSystem& files, const std::string& folder, Job& job);

// Makes a new folder, and its missing parents: prefix-1, or the next number that is free.
// Concurrent callers get different folders. Throws FileError.
std::string make_numbered_folder(const std::string& prefix);

// Throws like the constructor if the folder holds a run, but makes and locks nothing. For an early
// error.
void refuse_other_run(FileSystem& files, const std::string& path);

}  // namespace lockstep
