// Images and tables by the names that job files and the command use for them.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastore.h"
#include "lockstep/data/image_folder.h"

namespace lockstep {

inline constexpr const char* builtin_digits_name = "builtin:digits";
// Names the images themselves as what an image-to-image network shall give.
inline constexpr const char* image_targets_inputs = "inputs";

// The absolute path of a folder or CSV file named in a job file that lies in `beside`: beside the
// file; or, where nothing is there, in the folder that LOCKSTEP_DATA names, if it is there.
// Absolute paths, "" and names such as "builtin:digits" stay. Throws InvalidArgument for unknown
// builtin names, Unsupported for addresses ("s3://...").
std::string resolve_data_path(const std::string& name, const std::string& beside);

// The images of a resolved name, or the rows of a file whose name ends in .csv, whose labels the
// column of that name holds ("": the last). Throws FileError or DataError when there are none,
// InvalidArgument for a column of images, and as image_folder() and csv_datastore() do.
DatastorePtr open_data(const std::string& name,
                       ImageFolderOptions options = {.allow_empty_folders = true},
                       const std::string& label_column = {});

// The same images with labels that count in `classes`, which must contain all classes of the store
// that have images. Throws InvalidArgument naming a class that is missing. Thread-safe.
DatastorePtr with_classes(DatastorePtr store, const std::vector<std::string>& classes);

// The named files, unlabelled (one class, ""); folders stand for all images in them, in the order
// of their listing. Throws FileError or DataError.
DatastorePtr image_files(const std::vector<std::string>& paths);

}  // namespace lockstep
