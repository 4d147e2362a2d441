// Advisory locks on files (flock). The system releases a lock when its process ends, however it
// ends, so a lock tells whether a process works on something.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/os/descriptor.h"

namespace lockstep {

// Holds an exclusive lock on a file until destruction. Not thread-safe.
class FileLock {
 public:
  // Locks the file, which is made if it is missing. Nothing if another process holds the lock.
  // file_is_locked() holds a lock for a moment, so locking is retried for 0.2 seconds. Throws
  // FileError if the file cannot be opened or locked.
  static std::optional<FileLock> take(const std::string& path);

 private:
  explicit FileLock(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  Descriptor descriptor_;  // closing it releases the lock
};

// Whether a process holds the lock. False if there is no such file. Thread-safe.
bool file_is_locked(const std::string& path);

}  // namespace lockstep
