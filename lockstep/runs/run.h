// Runs a job: from its description to a trained network in a folder.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runs/job_plan.h"
#include "lockstep/runs/run_data.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

struct RunTrial;  // see store/run_recorder.h

struct RunOptions {
  std::string folder;   // see run_folder.h
  bool resume = false;  // continue if the folder holds a run of this job
  // For a continued run whose receipt is incomplete up to its checkpoint: compute the missing
  // iterations again instead of refusing the run.
  bool rebuild_receipt = false;
  bool save_initial = false;  // write initial.safetensors
  // A model file, a checkpoint or the folder of a run whose values replace random initial values
  // ("": none, or that of the continued run). Its layers must have the job's names and sizes.
  // job.json records the digest of the file and its path, where a continued run finds it again.
  std::string initial_model;
  std::vector<TrainingObserver*> observers;  // owned by the caller
  // Called once, when the data and the folder are open, before anything is read or trained.
  std::function<void(const JobPlan&)> planned = {};
  // Called after every iteration, by one thread. True ends the run after a checkpoint.
  std::function<bool()> stop;
  std::function<bool()> interrupted;  // as in TrainingControl
  int64_t stop_after = 0;             // as in TrainingControl
  int64_t stop_after_epochs = 0;      // the same in epochs; 0: no limit
  std::function<int64_t()> threads;   // as in TrainingControl
  // As in TrainingControl, for a job with worker processes.
  std::function<std::vector<int>()> workers = {};
  std::shared_ptr<detail::PoolCore> pool = {};
  bool dry_run = false;  // as in TrainingControl
  bool profile = false;  // as in TrainingControl
  // The folder of the run store in which the run is recorded (see store/run_store.h); "": none.
  std::string store = {};
  std::string address =
      {};  // of the run in an S3 store, of which `folder` is the local copy; or ""
  // The sweep that the run is a trial of, if any. The caller keeps it until the run has ended.
  const RunTrial* trial = nullptr;
};

struct RunResult {
  TrainingResult training;
  // Evaluations of the trained network, with the job's metrics and, if labels are learned, the
  // confusion. Empty if there are no such data or the run was stopped.
  std::optional<Evaluation> validation, test;
  std::string model;                     // the model file
  std::string checkpoint;                // the newest that this call wrote, or ""
  std::vector<std::string> classes;      // empty if the targets are images
  std::string examples = "images";       // what was trained on: "images", "rows"
  std::vector<UnreadableImage> skipped;  // images that were left out, as in RunData
};

// Runs a complete job. The trained bits depend only on the job, the images and the numerics
// fingerprint. Throws what opening, splitting, building and training throw, including ReceiptDamage
// (see train/state/receipt_check.h). A failed run can be continued from its last checkpoint, whose
// values are in its model file. The folder records the state of the run (run_state.h). Blocks until
// the run ends. Several runs in different folders may be active at the same time.
RunResult run_job(const Job& job, const RunOptions& options);

}  // namespace lockstep
