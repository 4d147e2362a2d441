// Images in a folder, labelled by the folder that holds them.
#pragma once

#include <string>

#include "lockstep/data/datastore.h"

namespace lockstep {

struct ImageFolderOptions {
  bool recursive = true;  // also the folders below; else only the files of `path` itself
  // A folder below without any image in it or below it is most often a mistake: a class that cannot
  // be learned. Folders whose names begin with '.' are no classes and may be empty anyway.
  bool allow_empty_folders = false;
  // Names that are no file (a broken link, a pipe) are listed as well; reading them throws.
  bool list_unreadable = false;
};

// All .jpg, .jpeg, .png, .pbm, .pgm, .pnm and .ppm files (any case) below `path`; other files are
// ignored. The label is the name of the folder that holds the file (as in a/cat/1.png: cat). The
// listing is sorted bytewise by path relative to `path`; files are read when they are asked for.
// Symbolic links are followed, except to a folder that the walk is already inside (a loop). Throws
// FileError when the folder is missing or cannot be read, DataError when it holds no image (the
// message says what it does hold), for an image's name that is no file, and for a folder below
// without images (see the options).
DatastorePtr image_folder(const std::string& path, ImageFolderOptions options = {});

}  // namespace lockstep
