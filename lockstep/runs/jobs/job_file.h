// Job files: a complete training in one TOML file.
//
//   [data]          train, validation or validation_fraction, test or test_fraction, targets
//   [augmentation]  fields of Augmentation
//   [noise]         fields of InputNoise
//   [variables]     numbers, or expressions over other variables in any order
//   [network]       input (short for an image_input layer called "input" in front), layers, loss
//   [training]      fields of TrainingOptions, and verbose_frequency
//   [sweep]         for sweeps alone, see sweep_table.h
//   name            the name of the job; default: the file's name
//
// Every numeric field may hold an expression as text (see expression.h). An entry of `layers` is a
// layer (type, fields, optional name and inputs) or a group
//
//   { repeat = N, layers = [...] }
//
// whose layers are repeated N >= 0 times in sequence. If a group is repeated more than once, names
// inside it get the number of the repetition as a suffix (conv -> conv_1, conv_2). A reference from
// inside the group is to the layer of the same repetition. A reference after the group is to
// the layer of the last repetition. "group_input" is the layer before the current repetition.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

inline constexpr int64_t max_job_layers = 10'000;

// The sources of the images or feature vectors.
struct JobData {
  // A folder, a .csv file, or "builtin:digits"; for a network with several inputs one of them for
  // each input layer, in order (see open_inputs()).
  std::vector<std::string> train;
  std::vector<std::string> validation;  // the same, or none
  std::vector<std::string> test;        // the same, or none
  // For folders of images: which folders name the class of an image (see FolderLabels).
  std::string labels = "first";
  // For .csv files: the column with the labels. "": the last column. For .jsonl files of texts with
  // classes: the keys of label and text. "": "label" and "text".
  std::string label_column, text_column;
  // The columns with the numbers that each row, or step of a sequence, is to give.
  std::vector<std::string> target_columns;
  // Of tables: columns of texts, and columns that are left out.
  std::vector<std::string> categories, ignored_columns;
  // How a network sees categories: "one-hot", as features of 0 and 1, or "embedding": its input is
  // followed by a category_embedding of these features, with this many numbers for each column (0:
  // half of its categories, rounded up, at most 50).
  std::string category_encoding = "one-hot";
  int64_t embedding_size = 0;
  std::string missing = "refuse";  // see MissingValues
  bool header = true;              // the first line of .csv files names the columns
  // How targets that are numbers are normalized while they are learned: as in
  // DenormalizationOptions, whose layer the network then ends in.
  std::string target_scaling = "none";
  // Shares of each label's training images, used if there is no folder for that part.
  double validation_fraction = 0;
  double test_fraction = 0;
  // Of tables, or of the table with the targets of images; neither is a feature or target. Rows
  // with the same text in group_column are never on two sides of a split; time_column has numbers
  // or dates, and the last rows by time are held out. "": none.
  std::string group_column, time_column;
  // k-fold cross-validation: the training data, without the test's share, are partitioned into
  // `folds` parts with equal shares of each label, and part number `fold` (from 1) is validated. 0:
  // no folds.
  int64_t folds = 0, fold = 1;
  // The desired output for each image or sequence. "": the network learns labels instead;
  // "inputs": the images (without noise) or sequences themselves; "next_step": for each step of a
  // sequence the values of the next one; else a folder with files of the same names.
  std::string targets, validation_targets, test_targets;
  // The classes of targets that are label images; without names they are not. Not visited: see
  // pixel_classes.h.
  PixelClasses pixel_classes;
  // Whether targets are class labels: of observations, or of pixels.
  bool labeled() const { return targets.empty() || !pixel_classes.names.empty(); }
  // Resizes images to the size of the network's input, and targets to the size of its output.
  bool resize = false;
  // Pixels that the shorter side of images gets before they are cut; 0: images keep their sizes.
  int64_t resize_shorter = 0;
  // Cuts images to the size of the network's input instead: "none", "center", or "random" (training
  // images at a random position that changes every epoch, other images at the center). Images must
  // be at least as large as the input. "random_resized": a region of each training image, drawn
  // again in every epoch, is resized to the input (RandomResizedCrop); other images get a shorter
  // side of resize_shorter pixels (0: 8/7 of the input's longer side) and are cut at the center.
  std::string crop = "none";
  NumberRange crop_area = RandomResizedCrop().area, crop_ratio = RandomResizedCrop().ratio;
  // JPEG files are decoded at the smallest of the scales 1/8, 1/4, 1/2 and 1 that leaves what
  // resizing needs: the network's input, or resize_shorter pixels of the shorter side.
  bool scaled_decoding = false;
  // "exif": JPEG, PNG and WebP images are turned as their EXIF orientation says; "stored": none is.
  std::string orientation = "stored";
  // Images that cannot be read: "stop" ends the run at the first one. "skip" leaves them out of the
  // listing, which requires an additional pass over all images.
  std::string bad_images = "stop";
  // For texts (see text_source.h): what a token is, "characters", "bytes", "words" or
  // "numbers"; the most tokens of the vocabulary, where others count as unknown (0: it has all
  // tokens of the text); the tokens of an example, and from the begin of one to that of the next
  // (0: the length).
  std::string tokens = "characters";
  int64_t max_tokens = 0;
  int64_t window_length = 256;
  int64_t window_stride = 0;

  void visit(FieldVisitor& v);
};

// A table of a job file, with its fields and their defaults.
struct JobTable {
  std::string name, help;
  std::vector<FieldInfo> fields;
};
// All tables with known keys, in the order above, for documentation and completion.
std::vector<JobTable> job_tables();

struct Job {
  std::string name;
  JobData data;  // paths are absolute
  Augmentation augmentation;
  InputNoise noise;
  // The model whose values the network begins with, as far as they fit: a file, or the folder of a
  // run; an absolute path. "": it begins with random values.
  std::string from;
  // Resolved: for Network::from_json(), with all fields. Null only before a job is read.
  std::shared_ptr<const nlohmann::ordered_json> network;
  TrainingOptions training;
  // Whether the file or a setting says how often to validate. If not, plan_job() makes it once an
  // epoch where an epoch is shorter than the default of TrainingOptions.
  bool validation_frequency_given = true;
  // `class_weights` as a table: factors by the names of classes, in place of those of `training`.
  // plan_job() puts them into the order of the classes; classes that are not named have 1.
  std::map<std::string, double> class_weights;
  // `class_weights = "balanced"`: plan_job() puts in balanced_class_weights() (train/trainer.h).
  bool balanced_class_weights = false;
  int64_t verbose_frequency = 50;  // iterations between rows of the progress table
  std::string file;                // the file it was read from, for errors; not part of the job
  // The values of [variables], by name. Not part of the job: resolved() contains their effects.
  std::map<std::string, double> variables;
  // The fields of [augmentation], [noise] and [training] that the file or a setting names:
  // "training.seed". Not part of the job; none if a .json file was read, which names all.
  std::vector<std::string> given;

  // The complete job with all defaults filled in and expressions evaluated. read_job() of the
  // result gives the same job. How often to validate is left out if it is not given.
  nlohmann::ordered_json resolved() const;
};

// Reads a job file: TOML, or the JSON of resolved() if the name ends in .json.
//
// `settings` are "KEY=VALUE" changes to the file. A key is dotted (training.max_epochs=5), the name
// of a variable (depth=2) or the name of a field (max_epochs=5). A value is parsed as TOML, or
// taken as text if it is not valid TOML.
//
// A relative path in the file is relative to the file's folder. A relative path in `settings` is
// relative to the current folder. If nothing exists there, it is looked up in the folder that the
// environment variable LOCKSTEP_DATA names.
//
// Throws FileError if the file cannot be read, DataError with line and column for bad syntax,
// Unsupported for URLs as paths, and InvalidArgument naming file and field for other errors. For
// unknown tables, keys and layers the hint is the nearest known name. Thread-safe.
Job read_job(FileSystem& files, const std::string& path,
             const std::vector<std::string>& settings = {});

// A job file with its settings, in a form that other processes read.
struct JobText {
  std::string file;  // its absolute path
  std::string tree;  // JSON; the paths in [data] are absolute
};
// Throws what read_job() throws.
JobText read_job_text(FileSystem& files, const std::string& path,
                      const std::vector<std::string>& settings = {});
// The text with further settings.
JobText with_settings(const JobText& text, const std::vector<std::string>& settings);
// The job of such a text, with further fields: a key as in settings, and JSON. Throws what
// read_job() throws, and InvalidArgument for unknown keys. Thread-safe.
Job job_of(const JobText& text,
           const std::vector<std::pair<std::string, std::string>>& fields = {});
// The JSON pointer of the field of a key ("/training/momentum"). Throws InvalidArgument for unknown
// keys.
std::string field_of_key(const JobText& text, const std::string& key);

// Reads the text of a job that resolved() returned.
Job read_resolved_job(const std::string& text);

}  // namespace lockstep
