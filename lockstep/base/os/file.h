// Files: reads of whole files, and atomic writes. All file access that can fail goes through a
// FileSystem, so that tests can inject failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// An open file for appending. Not thread-safe. The destructor closes it without syncing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Appends all bytes or throws FileError.
  virtual void append(std::span<const std::byte> bytes) = 0;
  // Returns when the bytes are on stable storage (fdatasync). Throws FileError.
  virtual void sync() = 0;
};

// The file operations that Lockstep needs. Thread-safe. Paths are UTF-8 text. Errors are FileError
// with the path and the system's reason.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Reads a whole file. Refuses anything but a regular file (a folder, pipe, socket, device) before
  // reading, and a file larger than the machine's memory.
  virtual std::vector<std::byte> read(const std::string& path) = 0;
  // Reads a file of any size and calls `chunk` for consecutive parts of it, each 1 MiB at most; a
  // file system that can only read whole files gives one part. Refuses anything but a regular file,
  // as read(). What `chunk` throws ends the reading and passes through.
  using ChunkReader = std::function<void(std::span<const std::byte> chunk)>;
  virtual void read_in_chunks(const std::string& path, const ChunkReader& chunk) {
    chunk(read(path));
  }
  // Opens for writing; truncates unless `append`.
  virtual std::unique_ptr<WritableFile> open(const std::string& path, bool append) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Makes renames and new names in the folder durable (fsync of the folder).
  virtual void sync_folder(const std::string& folder) = 0;
  // Makes one folder, whose parent must exist. Does nothing if the folder exists.
  virtual void make_folder(const std::string& folder) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual bool is_folder(const std::string& path) = 0;
  // The names (not paths) in a folder, sorted bytewise, without "." and "..".
  virtual std::vector<std::string> list(const std::string& folder) = 0;
  // Removes a file. Does nothing if it does not exist.
  virtual void remove(const std::string& path) = 0;
};

// The machine's own file system. Lives as long as the program.
FileSystem& local_files();

// Local files, anchored in a folder that may be moved while it is used. Paths inside `folder` are
// resolved from the folder that is opened here, even after it has been moved. If the name `folder`
// no longer leads to it, every operation that writes or syncs throws FileError with that name, and
// nothing is written to a folder that took the name. The open files may outlive the FileSystem.
std::unique_ptr<FileSystem> files_anchored_in(const std::string& folder);

// Writes path + ".tmp", syncs it, renames it to `path` and syncs the folder. After a crash the file
// has the old or the new content, never a mixture. On failure removes the temporary file if
// possible and throws FileError.
void write_atomically(FileSystem& files, const std::string& path, std::span<const std::byte> bytes);
void write_atomically(FileSystem& files, const std::string& path, std::string_view text);
// The same; `write` appends the contents. If it throws, the file stays as it was.
void write_atomically(FileSystem& files, const std::string& path,
                      const std::function<void(WritableFile& file)>& write);

// Makes a folder and its missing parents, all durable on return. Does nothing for folders that
// exist.
void make_folders(FileSystem& files, const std::string& folder);

// "a/b" from "a" and "b"; "b" if `folder` is empty or `name` starts with '/'.
std::string join_path(std::string_view folder, std::string_view name);
// The folder part of a path; "." if it has none.
std::string folder_of(std::string_view path);

std::string read_text(FileSystem& files, const std::string& path);
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace lockstep
