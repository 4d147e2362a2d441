// Job files: all of a training in one TOML file.
//
//   [data]          train, validation or validation_fraction, test or test_fraction, targets
//   [augmentation]  fields of Augmentation
//   [noise]         fields of InputNoise
//   [variables]     numbers, or expressions over other variables in any order
//   [network]       input (short for an image_input layer called "input" in front), layers, loss
//   [training]      fields of TrainingOptions, and verbose_frequency
//   name            of the job; else the file's name
//
// Every numeric field may hold an expression as text (see expression.h). An entry of `layers` is a
// layer (type, its fields, and where wanted name and inputs) or a group { repeat = N, layers =
// [...]
// }, whose layers are repeated N >= 0 times, one behind the other. Names given inside a group that
// is repeated more than once get the number of the repetition as a suffix (conv -> conv_1, conv_2);
// a reference from inside means the layer of the same repetition, one from behind the group that of
// the last, and "group_input" the layer in front of this repetition.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/data/augmentation.h"
#include "lockstep/data/noise.h"
#include "lockstep/train/options.h"

namespace lockstep {

inline constexpr int64_t max_job_layers = 10'000;

// Where the images, or vectors of features, come from.
struct JobData {
  std::string train;       // a folder, a .csv file, or "builtin:digits"
  std::string validation;  // the same, or "" for none
  std::string test;        // the same, or "" for none
  // Of .csv files: the column with the labels, or "" for the last.
  std::string label_column;
  // Shares of each label that are taken from the training images, where there is no folder.
  double validation_fraction = 0;
  double test_fraction = 0;
  // Image to image: what the network shall make of each image. "": the labels are learned;
  // "inputs": the images themselves (without noise); or a folder with images of the same names.
  std::string targets, validation_targets, test_targets;
  // Images of other sizes are resized to that of the network's input (its output, for targets).
  bool resize = false;
  // Or they are cut to it: "none", "center", or "random" (training images anywhere, anew in every
  // epoch; others at their centre). Images to cut must be at least as large.
  std::string crop = "none";
  // Images that cannot be read: "stop" ends the run at the first, "skip" leaves them out of the
  // listing, which takes one more reading of all images.
  std::string bad_images = "stop";

  void visit(FieldVisitor& v);
};

// A table of a job file, with its fields and their defaults.
struct JobTable {
  std::string name, help;
  std::vector<FieldInfo> fields;
};
// All tables whose keys are known, in the order above: what documentation and completion list.
std::vector<JobTable> job_tables();

struct Job {
  std::string name;
  JobData data;  // folders as absolute paths
  Augmentation augmentation;
  InputNoise noise;
  nlohmann::ordered_json network;  // resolved: what Network::from_json takes, every field present
  TrainingOptions training;
  int64_t verbose_frequency = 50;  // iterations between rows of the progress table
  std::string file;                // that it was read from, which errors name; no part of it

  // Everything, with defaults filled in and expressions evaluated; read_job() reads it again, with
  // the same result.
  nlohmann::ordered_json resolved() const;
};

// Reads a job file: TOML, or JSON as resolved() gives it where the name ends in .json.
//
// `settings` are "KEY=VALUE" changes to the file: dotted keys (training.max_epochs=5), names of
// variables (depth=2) or of training fields (max_epochs=5). A value is read as TOML, or as text
// where it is none.
//
// A relative folder is looked for beside the job file, one of `settings` in the process's folder,
// and then, where the environment has LOCKSTEP_DATA, in that folder.
//
// Throws FileError when the file cannot be read, DataError with line and column for bad syntax,
// InvalidArgument naming file and field for everything else; unknown tables, keys and layers get
// the nearest known name as a hint. Thread-safe.
Job read_job(FileSystem& files, const std::string& path,
             const std::vector<std::string>& settings = {});

// The job that resolved() gave as text.
Job read_resolved_job(const std::string& text);

}  // namespace lockstep
