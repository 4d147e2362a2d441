// Files: whole reads, and writes that are either there completely or not at all. All access that
// can fail goes through a FileSystem, so that tests can break it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// An open file being appended to. One thread at a time. The destructor closes without syncing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Appends all bytes or throws FileError.
  virtual void append(std::span<const std::byte> bytes) = 0;
  // Returns when the bytes are on stable storage (fdatasync). Throws FileError.
  virtual void sync() = 0;
};

// The operations Lockstep needs. Thread-safe. All paths are UTF-8 text; errors are FileError naming
// the path and the system's reason.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // A whole file. What is none (a folder, pipe, socket, device) is refused before it is read, as is
  // what is larger than the machine's memory.
  virtual std::vector<std::byte> read(const std::string& path) = 0;
  // Opens for writing; truncates unless `append`.
  virtual std::unique_ptr<WritableFile> open(const std::string& path, bool append) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Makes renames and new names in the folder durable (fsync of the folder).
  virtual void sync_folder(const std::string& folder) = 0;
  // One folder, in one that is there; nothing happens when it is a folder already.
  virtual void make_folder(const std::string& folder) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_folder(const std::string& path) = 0;
  // Names (not paths) in a folder, sorted bytewise; "." and ".." left out.
  virtual std::vector<std::string> list(const std::string& folder) = 0;
  // Removes a file; nothing happens when it is not there.
  virtual void remove(const std::string& path) = 0;
};

// The machine's own file system. Lives as long as the program.
FileSystem& local_files();

// The machine's own files, for who keeps a folder that others may move: what lies inside is reached
// from the folder as it was opened here, wherever it is by now. Once its name leads elsewhere or
// nowhere, everything that writes, and every sync, throws FileError naming it; nothing is written
// to what has taken its name. Files it has opened may outlive it.
std::unique_ptr<FileSystem> files_anchored_in(const std::string& folder);

// Writes path + ".tmp", syncs it, renames it to `path` and syncs the folder: after a crash the old
// or the new content is there, never a mixture. On failure the temporary file is removed if
// possible and FileError is thrown.
void write_atomically(FileSystem& files, const std::string& path, std::span<const std::byte> bytes);
void write_atomically(FileSystem& files, const std::string& path, std::string_view text);

// A folder with those around it, durable when it returns; nothing happens where they are there.
void make_folders(FileSystem& files, const std::string& folder);

// "a/b" from "a" and "b"; "b" where `folder` is empty or `name` starts with '/'.
std::string join_path(std::string_view folder, std::string_view name);
// The folder part of a path, "." where it has none.
std::string folder_of(std::string_view path);

std::string read_text(FileSystem& files, const std::string& path);
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace lockstep
