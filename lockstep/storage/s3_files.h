// Objects of an S3 store as files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/base/os/file.h"

namespace lockstep::storage {

// Files with paths "s3://bucket/key". A folder exists if a key begins with its path and '/'.
// Written files become visible, whole, in sync(). Renaming copies and removes. Opening to append
// throws Unsupported. Lives as long as the program. Thread-safe.
FileSystem& s3_files();

// s3_files() for an address, local_files() for other paths.
FileSystem& files_of(const std::string& path);

// Writes a file whole: write_atomically() for a local path, one object for an address. Throws
// FileError. Thread-safe.
void write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace lockstep::storage
