// The folder into which the results of a job are copied: it appears whole or not at all.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/os/file_lock.h"

namespace lockstep {

// Copies are made in a hidden folder next to the final one. A process that is killed leaves it
// there, and the next fetch to the same folder removes it. Not thread-safe.
class FetchedFolder {
 public:
  // Makes the parents of `out` and the hidden folder. Throws InvalidArgument if `out` exists and is
  // not an empty folder, or if another process fetches to it; FileError.
  explicit FetchedFolder(const std::string& out);
  // Removes the hidden folder.
  ~FetchedFolder();
  FetchedFolder(const FetchedFolder&) = delete;
  FetchedFolder& operator=(const FetchedFolder&) = delete;

  // An empty folder for the copy.
  const std::string& path() const { return path_; }
  // Whether an interrupted fetch had left something, which was removed.
  bool removed_unfinished() const { return removed_unfinished_; }
  // Moves a folder in path() to its place. Throws FileError.
  void finish(const std::string& name);

 private:
  std::string out_, hidden_, path_;
  std::optional<FileLock> lock_;
  bool removed_unfinished_ = false;
};

}  // namespace lockstep
