// Images in a folder. The label is the name of the folder that contains the file.
#pragma once

#include <string>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

struct ImageFolderOptions {
  bool recursive = true;  // also reads folders below; false: only the files of `path` itself
  // If false, a folder below `path` without any image in it or below it is an error, because its
  // class could not be learned. Folders whose names begin with '.' are not classes and may always
  // be empty.
  bool allow_empty_folders = false;
  // Lists names that are not files (broken links, pipes) as well. Reading them throws.
  bool list_unreadable = false;
};

// All .jpg, .jpeg, .png, .pbm, .pgm, .pnm and .ppm files (in upper or lower case) below `path`.
// Other files are ignored. The label is the name of the folder that contains the file (a/cat/1.png:
// cat). The listing is sorted bytewise by path relative to `path`. A file is read on each access.
// Symbolic links are followed, except to a folder that the walk is currently inside (a loop).
// Throws FileError if the folder is missing or cannot be read. Throws DataError if it contains no
// image (the message lists its contents), for an image name that is not a file, and for a folder
// below without images (see the options).
DatastorePtr image_folder(const std::string& path, ImageFolderOptions options = {});

}  // namespace lockstep
