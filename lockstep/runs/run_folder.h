// The folder that a run writes.
//
//   job.json                the resolved options; read_job() reads it
//   receipt.jsonl           one line for each iteration, see train/receipt.h
//   log.jsonl               the same with times, and the validations
//   checkpoints/            see train/checkpoint.h
//   initial.safetensors     the network before the first iteration, where wanted
//   confusion.json          of validation and test, where labels are learned, when the run has
//                           finished: see ConfusionMatrix::to_json()
//   model.safetensors       the trained network, when the run has finished
//   lock                    held while a process works here
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/file.h"
#include "lockstep/runs/job_file.h"

namespace lockstep {

// A run folder that belongs to this process until destroyed. One thread at a time.
class RunFolder {
 public:
  // Makes the folder where it is missing and locks it. Without `resume` it must hold no run; with
  // it a run that is there must be of the same job (see job_difference()); a folder without one
  // starts anew. `extra` are entries of job.json besides the job's. Throws InvalidArgument, with a
  // hint, when another process works in it or when it holds another run; FileError.
  RunFolder(FileSystem& files, std::string path, const Job& job,
            const nlohmann::ordered_json& extra, bool resume);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return join_path(path_, name); }
  // Whether a run was here before.
  bool resumed() const { return resumed_; }

 private:
  void lock();
  void adopt(const nlohmann::ordered_json& description, bool resume);

  FileSystem& files_;
  std::string path_;
  int lock_ = -1;
  bool resumed_ = false;
};

// Throws as the constructor would for a folder that holds a run, without making or locking
// anything: for telling early.
void refuse_other_run(FileSystem& files, const std::string& path);

}  // namespace lockstep
