// Advisory locks on files (flock). The system releases a lock when its process ends, however it
// ends, so a lock tells whether a process works on something. Child processes never hold it.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

// Holds an exclusive lock on a file until destruction. Not thread-safe.
class FileLock {
 public:
  // Locks the file, which is made if it is missing. Nothing if another process holds the lock.
  // file_is_locked() holds a lock for a moment, so locking is retried for 0.2 seconds. Throws
  // FileError if the file cannot be opened or locked. If the file is removed while its lock is
  // held, a process that waits for the lock locks a new file.
  static std::optional<FileLock> take(const std::string& path);

  ~FileLock();
  FileLock(FileLock&&) noexcept;
  FileLock& operator=(FileLock&&) noexcept;

 private:
  struct Held;
  explicit FileLock(std::unique_ptr<Held> held);
  std::unique_ptr<Held> held_;
};

// Whether a process holds the lock. False if there is no such file. Thread-safe.
bool file_is_locked(const std::string& path);

}  // namespace lockstep
