// Prepares a job for training: data, network, device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/engine/nn/network.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run_data.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// A check and preparation of a job without training: opens and splits the images (their names only,
// unless bad images are skipped), builds the network and resolves the device. Throws an error if
// parts do not fit. Image sizes are only checked later, when images are read.
struct JobPlan {
  Job job;  // with the resolved device
  RunData data;
  Network network;                        // initialized, or with the initial model's values
  TrainingData training = {};             // `data` in the trainer's form
  std::vector<std::string> classes = {};  // empty if the targets are images
  std::string initial_model = {};         // digest of the file, or ""
  bool initial_model_checked = true;      // whether that file contains a digest of its contents
  bool initial_averages = false;          // it gave moving averages of its parameters
  std::string taken_values = {};          // what the network took from the model of [network] from
  std::vector<std::string> new_values = {};  // names of those that it did not take
  std::vector<std::string> name_notes = {};  // names that differ from those of an initial model
  int64_t iterations_per_epoch = 0;

  // What a user should know before the training, a sentence each: of the data (notices_of()), and
  // of the plan itself: a doubtful order of class_weights, what an initial model or
  // `freeze` does not keep.
  std::vector<std::string> notices() const;
  std::vector<std::string> own_notices() const;
};

// Whether the network gets values, or only their sizes (see Network::initialize_sizes()).
enum class JobValues { made, sizes_alone };

struct JobPlanOptions {
  std::string initial_model = {};  // as in RunOptions
  JobValues values = JobValues::made;
  std::function<bool()> stop = {};  // as in readable_images()
  // Of the run that is continued or computed again (run_columns()); empty: those of the initial
  // model, or else of the training data.
  TableColumns columns = {};
};

// The data of a job in the trainer's form.
TrainingData training_data_of(const Job& job, const RunData& data);

JobPlan plan_job(const Job& job, const JobPlanOptions& options = {});

}  // namespace lockstep
