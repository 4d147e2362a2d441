// Running a job: from its description to a trained network in a folder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/readable.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/runs/job_file.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

struct RunOptions {
  std::string folder;   // see run_folder.h
  bool resume = false;  // go on in a folder that holds a run of this job
  // Of a run that goes on and whose receipt is not whole up to its checkpoint: compute the missing
  // iterations again, instead of refusing it.
  bool rebuild_receipt = false;
  bool save_initial = false;  // write initial.safetensors
  // A model file, a checkpoint or the folder of a run with the values to start from instead of
  // random ones ("": none). Its layers must have the job's names and sizes; which file it was is
  // noted in job.json by its contents.
  std::string initial_model;
  std::vector<TrainingObserver*> observers;  // kept by the caller
  // Asked after every iteration; true ends the run after a checkpoint. Asked by one thread.
  std::function<bool()> stop;
  std::function<bool()> interrupted;  // as in TrainingControl
  int64_t stop_after = 0;             // as in TrainingControl
  bool dry_run = false;               // as in TrainingControl
  bool profile = false;               // as in TrainingControl
};

struct RunResult {
  TrainingResult training;
  // Of the trained network, where there is such data; none when it was stopped. With the job's
  // metrics and, where labels are learned, the confusion.
  std::optional<Evaluation> validation, test;
  std::string model;                     // the model file
  std::string checkpoint;                // the newest that was written, or ""
  std::vector<std::string> classes;      // empty where images are learned
  std::vector<UnreadableImage> skipped;  // images left out, as in RunData
};

// The job's images, split.
struct RunData {
  DatastorePtr training;
  DatastorePtr validation, test;  // null where the job has none
  // Image to image, in the order of the images; null where labels are learned.
  DatastorePtr training_targets, validation_targets, test_targets;
  bool random_crop = false;  // training images are to be cut at random
  // What was left out, by path, where the job says so: images, and images without their targets.
  std::vector<UnreadableImage> skipped;
};

// Opens the images of a job and splits them by label with the job's seed: validation first, then
// test, the rest trains. Labels of other folders are matched by name. Throws FileError, DataError,
// InvalidArgument (a class there that is not trained on, a share without any image). Where labels
// are learned, every folder of training images must hold some, and every class must keep one that
// can be read. `stop`: as of readable_images().
RunData open_run_data(const Job& job, const std::function<bool()>& stop = {});

// The network of a job, not initialized. Throws InvalidArgument.
Network build_network(const Job& job);

// What a job would do, found out without doing it: opens and splits the images (names alone, unless
// bad ones are to be skipped), builds the network, resolves the device. Throws what does not fit as
// far as it can be told so; sizes of images are seen when they are read.
struct JobPlan {
  Job job;  // with the device that computes
  RunData data;
  Network network;                        // initialized, or with the initial model's values
  TrainingData training = {};             // `data` as the trainer takes it
  std::vector<std::string> classes = {};  // empty where images are learned
  std::string initial_model = {};         // digest of the file, or ""
  bool initial_model_checked = true;      // whether that file carries a digest of its contents
  int64_t iterations_per_epoch = 0;
};
// Whether the network gets its values, or their sizes alone (see Network::initialize_sizes()).
enum class JobValues { made, sizes_alone };
struct JobPlanOptions {
  std::string initial_model = {};  // as in RunOptions
  JobValues values = JobValues::made;
  std::function<bool()> stop = {};  // as of readable_images()
};
JobPlan plan_job(const Job& job, const JobPlanOptions& options = {});

// Does all of a job. The trained bits depend on the job, the images and the numerics fingerprint
// alone. Throws what opening, splitting, building and training throw, ReceiptDamage among it (see
// train/receipt_check.h); a run that failed can be gone on with from its last checkpoint, whose
// values are in its model file. What became of the run is in the folder (run_state.h). Blocks;
// several runs in different folders may go on at once.
RunResult run_job(const Job& job, const RunOptions& options);

}  // namespace lockstep
