// The folder that a run writes.
//
//   job.json                the resolved options; read_job() reads it
//   receipt.jsonl           one line for each iteration, see train/receipt.h
//   log.jsonl               the same with times, and the validations
//   checkpoints/            see train/checkpoint.h
//   observations            what the data were, see train/observation_list.h
//   initial.safetensors     the network before the first iteration, where wanted
//   confusion.json          of validation and test, where labels are learned, when the run has
//                           finished: see ConfusionMatrix::to_json()
//   model.safetensors       the trained network, when the run has finished; that of the last
//                           iteration, where it was stopped; the last finite values, where it
//                           failed
//   state.json              whether it runs, was stopped, failed or has finished: see run_state.h
//   lock                    held while a process works here
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/file.h"
#include "lockstep/runs/job_file.h"
#include "lockstep/runs/run_state.h"

namespace lockstep {

inline constexpr const char* run_model_name = "model.safetensors";
inline constexpr const char* run_state_name = "state.json";
inline constexpr const char* run_lock_name = "lock";
// A folder with one of these holds a run.
inline constexpr const char* run_file_names[] = {"job.json", run_model_name, "receipt.jsonl",
                                                 "log.jsonl", "checkpoints"};

// A run folder that belongs to this process until destroyed. One thread at a time.
class RunFolder {
 public:
  // Makes the folder where it is missing, locks it, and notes that the run is running. Without
  // `resume` it must hold no run; with it a run that is there must be of the same job (see
  // job_difference()); a folder without one starts anew. `extra` are entries of job.json besides
  // the job's. Throws InvalidArgument, with a hint, when another process works in it or when it
  // holds another run; FileError. `files` is asked about the folder itself; inside it the machine's
  // own files are written.
  RunFolder(FileSystem& files, std::string path, const Job& job,
            const nlohmann::ordered_json& extra, bool resume);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  // For all that is read and written inside: see files_anchored_in().
  FileSystem& files() const { return *inside_; }
  std::string file(const std::string& name) const { return join_path(path_, name); }
  // Whether a run was here before.
  bool resumed() const { return resumed_; }
  // Where the run goes on with another end than it had (see job_difference.h), job.json gets it:
  // to be called when the training has agreed. Throws FileError.
  void note_end() const;
  // Notes what became of the run (see run_state.h). Throws FileError, also where the folder's name
  // leads to another one now.
  void note(RunStatus status, const std::string& reason = {}, int64_t iteration = 0) const;
  // Notes again what was noted before this process came.
  void note_as_before() const;

 private:
  void lock();
  void adopt(const nlohmann::ordered_json& description, bool resume);

  FileSystem& files_;
  std::string path_;
  std::unique_ptr<FileSystem> inside_;
  int lock_ = -1;
  RunState before_;
  bool resumed_ = false;
  nlohmann::ordered_json going_on_;  // null: the job stays as it is
};

// Makes a folder that was not there, with those around it: prefix-1, or the next number that is
// free. Two callers at the same time get two folders. Throws FileError.
std::string make_numbered_folder(const std::string& prefix);

// Throws as the constructor would for a folder that holds a run, without making or locking
// anything: for telling early.
void refuse_other_run(FileSystem& files, const std::string& path);

}  // namespace lockstep
