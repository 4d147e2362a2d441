// Images and tables by the names that job files and the command use.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

inline constexpr const char* builtin_digits_name = "builtin:digits";
// The name for the images or sequences themselves as targets.
inline constexpr const char* image_targets_inputs = "inputs";
// The name for the next step of a sequence as the target of each step.
inline constexpr const char* targets_next_step = "next_step";

// The absolute path of a folder or CSV file that a job file in the folder `folder` names. The path
// is relative to `folder`. If nothing exists there, it is relative to the folder LOCKSTEP_DATA, if
// it exists there. Absolute paths, "" and names such as "builtin:digits" are unchanged, and
// addresses "s3://bucket/prefix" but for slashes at the end. Throws InvalidArgument for unknown
// builtin names and invalid addresses, Unsupported for other URLs.
std::string resolve_data_path(const std::string& name, const std::string& folder);

// How tables are read.
struct TableOptions {
  std::string label_column = {};  // "": that of `columns` if the file has it, else the last column
  bool header = true;             // false: the first line is a row
  // The columns that the network learned, if known: the order of the features.
  TableColumns columns = {};
  bool find_header = false;  // see CsvOptions
  // For each input of the network, whether it is a sequence: a name is then a folder with a table
  // for each (sequence_folder()). Empty: none is.
  std::vector<bool> sequences = {};
  // The targets by step of the first input, if it is a sequence.
  StepTargets targets = {};
  // Of tables: see CsvOptions.
  std::vector<std::string> target_columns = {}, categories = {}, ignored_columns = {};
  MissingValues missing = MissingValues::refuse;
};

// By the names that job files use. Throws InvalidArgument for another name.
MissingValues missing_values(const std::string& name);
inline constexpr const char* missing_values_names[] = {"refuse", "mean", "flag"};

// Which inputs of a network are sequences, for TableOptions.
std::vector<bool> sequence_inputs(const Network& network);

// Opens the images of a resolved name, or the rows of a table (see is_table_name()). Throws
// DataError if `name` is not a folder or table, InvalidArgument for a label column with images and
// for other columns than those of `tables`, and what image_folder() and csv_datastore() throw.
DatastorePtr open_data(const std::string& name,
                       ImageFolderOptions options = {.allow_empty_folders = true},
                       const TableOptions& tables = {});

// Opens the inputs of a network, one name for each, as open_data() does. The first has the labels.
// A further table has no labels: all its columns are features. Example i has image or row i of
// each, except that folders next to a folder are matched by name: for each of its images they have
// one of the same name. Throws what open_data() and match_by_name() throw, and InvalidArgument for
// no names.
std::vector<DatastorePtr> open_inputs(const std::vector<std::string>& names,
                                      ImageFolderOptions options = {.allow_empty_folders = true},
                                      const TableOptions& tables = {});

// Opens images as targets of `inputs`, by their names. Throws what open_data() and match_by_name()
// throw.
DatastorePtr open_target_images(const Datastore& inputs, const std::string& name,
                                ImageFolderOptions options = {.allow_empty_folders = true});

// The same images with the label images of a folder as targets: PNG files of the same names up to
// extensions. `options` with the classes of the pixels, see image_folder(). The names are those of
// the images. Throws what open_data(), match_by_stem() and with_targets() throw.
DatastorePtr open_with_label_images(DatastorePtr images, const std::string& name,
                                    ImageFolderOptions options);

// Throws DataError if nothing has a resolved name. Thread-safe.
void require_existing(const std::string& name);

// Whether a name is that of a table, which exists.
bool is_table_file(const std::string& name);

// The names of the columns of a training's data, and what stands for missing values. Thread-safe.
TableColumns table_columns_of(const Datastore& training);

// What sequence_folder() needs for input number `input` of a network.
SequenceFolderOptions sequence_options(const TableOptions& tables, size_t input, bool labeled);

// What csv_datastore() needs for input number `input` of a network, with or without labels.
CsvOptions csv_options(const TableOptions& tables, size_t input, bool labeled);

// Examples with the inputs of all stores, as combine(), that have the names of the first store. One
// store is returned unchanged. Throws InvalidArgument for stores of different sizes. Thread-safe.
DatastorePtr join_inputs(std::vector<DatastorePtr> stores);

// The same stores, with images resized to the network's input layers, in order. Other inputs are
// unchanged.
std::vector<DatastorePtr> resized_inputs(std::vector<DatastorePtr> stores, const Network& network);

// The same images with labels that are indices into `classes`, which must contain all classes of
// the store that have images. Throws InvalidArgument naming a class that is missing. Thread-safe.
DatastorePtr with_classes(DatastorePtr store, const std::vector<std::string>& classes);

// The named files without labels (one class, ""). A folder stands for all images in it, in the
// order of its listing; `list_unreadable`, `upright` and `least` are as in ImageFolderOptions.
// Throws FileError or DataError, InvalidArgument if there are no files.
DatastorePtr image_files(const std::vector<std::string>& paths, bool list_unreadable = false,
                         bool upright = false, const LeastSize& least = {});

}  // namespace lockstep
