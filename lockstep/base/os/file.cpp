#include "lockstep/base/os/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/held_signal.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const char* doing, const std::string& path, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) hint = "free some space, or choose another folder";
  if (error == EFBIG) hint = "raise the limit of the size of files (ulimit -f)";
  throw FileError("[file] cannot " + std::string(doing) + " " + path + ": " +
                      std::system_category().message(error),
                  hint);
}

// A description of something that is not a regular file.
const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a special file";
}

// Reading a pipe may wait forever, and a device may have no end.
void require_file(const struct stat& info, const std::string& path) {
  if (S_ISREG(info.st_mode)) return;
  throw FileError(
      "[file] cannot read " + path + ": it is " + kind_of(info.st_mode) + ", not a file",
      S_ISDIR(info.st_mode) ? "" : "copy its contents to a file first");
}

// A sparse file may claim any size.
void require_memory(const struct stat& info, const std::string& path) {
  const auto size = static_cast<uint64_t>(std::max<off_t>(info.st_size, 0));
  const auto memory =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (size < memory) return;
  throw FileError("[file] cannot read " + path + ": it has " + std::to_string(size) +
                  " bytes, more than this machine's memory");
}

// What a file claims after its last data would be read as zeros.
void require_data(int fd, const struct stat& info, const std::string& path) {
  constexpr off_t largest_hole = off_t{1} << 30;
  if (info.st_size < largest_hole) return;
  const off_t begin = info.st_size - largest_hole;
  const bool hole = ::lseek(fd, begin, SEEK_DATA) < 0 && errno == ENXIO;
  if (::lseek(fd, 0, SEEK_SET) != 0) fail("read", path, errno);
  if (!hole) return;
  throw FileError("[file] cannot read " + path + ": it claims " + std::to_string(info.st_size) +
                  " bytes, but the last gibibyte of them is a hole without data: it is damaged");
}

// A path as a name relative to an open folder.
struct NameInFolder {
  int folder = AT_FDCWD;
  const char* name = nullptr;
};

// A folder that is held open. Paths inside are resolved from it, even after it has been moved. A
// default-constructed Anchor leaves all paths unchanged.
class Anchor {
 public:
  Anchor() = default;
  explicit Anchor(std::string folder) : folder_(std::move(folder)) {
    while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
    Descriptor fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::fstat(fd.get(), &info_) != 0) fail("open folder", folder_, errno);
    fd_ = std::make_shared<Descriptor>(std::move(fd));
  }

  NameInFolder resolve(const std::string& path) const {
    if (!fd_) return {AT_FDCWD, path.c_str()};
    if (path == folder_) return {fd_->get(), "."};
    const bool inside = path.size() > folder_.size() + 1 && path.starts_with(folder_) &&
                        path[folder_.size()] == '/';
    if (!inside) return {AT_FDCWD, path.c_str()};
    const size_t begin = path.find_first_not_of('/', folder_.size());
    return begin == std::string::npos ? NameInFolder{fd_->get(), "."}
                                      : NameInFolder{fd_->get(), path.c_str() + begin};
  }

  // Throws FileError if the folder's name no longer leads to the open folder.
  void check() const {
    if (!fd_) return;
    struct stat now {};
    const bool there = ::stat(folder_.c_str(), &now) == 0;
    if (there && now.st_dev == info_.st_dev && now.st_ino == info_.st_ino) return;
    throw FileError("[file] the folder " + folder_ +
                        (there ? " was replaced while files in it were written"
                               : " was removed or renamed while files in it were written"),
                    "nothing was written elsewhere; to continue, move the folder back if it still "
                    "exists");
  }

 private:
  std::string folder_;
  std::shared_ptr<const Descriptor> fd_;
  struct stat info_ {};
};

// Otherwise a folder named "s3:" would be made here.
void refuse_address(const std::string& path) {
  if (!path.starts_with("s3://")) return;
  throw Unsupported("[file] " + printable(path) +
                        " is an address in a store, but this output needs a local folder",
                    "write to a local folder, and copy it with `lockstep upload`");
}

class LocalFile : public WritableFile {
 public:
  LocalFile(Descriptor fd, std::string path, const Anchor& anchor)
      : fd_(std::move(fd)), path_(std::move(path)), anchor_(anchor) {}

  void append(std::span<const std::byte> bytes) override {
    anchor_.check();
    const HeldSignal too_large(SIGXFSZ);  // makes it an error, like a full disk
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0) {
        const int error = errno;
        if (error == EINTR) continue;
        fail("write", path_, error);
      }
      if (written == 0) fail("write", path_, ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  void sync() override {
    anchor_.check();
    while (::fdatasync(fd_.get()) != 0) {
      if (errno == EINTR) continue;
      if (errno == EINVAL) return;  // a pipe or a device has nothing to sync
      fail("sync", path_, errno);
    }
  }

 private:
  Descriptor fd_;
  std::string path_;
  Anchor anchor_;
};

class LocalFiles : public FileSystem {
 public:
  explicit LocalFiles(Anchor anchor = {}) : anchor_(std::move(anchor)) {}

  std::vector<std::byte> read(const std::string& path) override {
    struct stat info {};
    const Descriptor fd = opened_to_read(path, info);
    require_memory(info, path);
    // The size is only a hint: files grow, and files in /proc report 0.
    std::vector<std::byte> bytes(static_cast<size_t>(std::max<off_t>(info.st_size, 0)) + 1);
    size_t filled = 0;
    for (;;) {
      if (filled == bytes.size()) bytes.resize(bytes.size() * 2);
      const size_t got = read_some(fd.get(), std::span(bytes).subspan(filled), path);
      if (got == 0) break;
      filled += got;
    }
    bytes.resize(filled);
    return bytes;
  }

  void read_in_chunks(const std::string& path, const ChunkReader& chunk) override {
    struct stat info {};
    const Descriptor fd = opened_to_read(path, info);
    std::vector<std::byte> bytes(size_t{1} << 20);
    while (const size_t got = read_some(fd.get(), bytes, path)) chunk(std::span(bytes).first(got));
  }

  std::unique_ptr<WritableFile> open(const std::string& path, bool append) override {
    refuse_address(path);
    anchor_.check();
    // O_NONBLOCK: opening a pipe without a reader must not wait.
    Descriptor fd = open_again(
        path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | (append ? O_APPEND : O_TRUNC));
    if (!fd) fail("open", path, errno);
    return std::make_unique<LocalFile>(std::move(fd), path, anchor_);
  }

  void rename(const std::string& from, const std::string& to) override {
    anchor_.check();
    const NameInFolder old = anchor_.resolve(from), made = anchor_.resolve(to);
    if (::renameat(old.folder, old.name, made.folder, made.name) != 0) {
      fail("rename", from + " to " + to, errno);
    }
  }

  void sync_folder(const std::string& folder) override {
    anchor_.check();
    const Descriptor fd = open_again(folder, O_RDONLY | O_DIRECTORY);
    if (!fd) fail("sync folder", folder, errno);
    while (::fsync(fd.get()) != 0) {
      if (errno == EINTR) continue;
      if (errno == EINVAL) return;  // the file system does not sync folders
      fail("sync folder", folder, errno);
    }
  }

  void make_folder(const std::string& folder) override {
    anchor_.check();
    const NameInFolder at = anchor_.resolve(folder);
    if (::mkdirat(at.folder, at.name, 0777) == 0) return;
    const int error = errno;
    if (error != EEXIST) fail("make folder", folder, error);
    if (!is_folder(folder)) fail("make folder", folder, ENOTDIR);
  }

  bool exists(const std::string& path) override {
    struct stat info {};
    return status(path, info);
  }

  bool is_folder(const std::string& path) override {
    struct stat info {};
    return status(path, info) && S_ISDIR(info.st_mode);
  }

  std::vector<std::string> list(const std::string& folder) override {
    const Descriptor fd = open_again(folder, O_RDONLY | O_DIRECTORY);
    if (!fd) fail("list folder", folder, errno);
    const std::unique_ptr<DIR, int (*)(DIR*)> handle(::fdopendir(::dup(fd.get())), ::closedir);
    if (!handle) fail("list folder", folder, errno);
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(handle.get());
      if (entry == nullptr) {
        if (errno != 0) fail("list folder", folder, errno);
        break;
      }
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());  // char_traits compares as unsigned bytes
    return names;
  }

  void remove(const std::string& path) override {
    const NameInFolder at = anchor_.resolve(path);
    if (::unlinkat(at.folder, at.name, 0) != 0 && errno != ENOENT && errno != ENOTDIR) {
      fail("remove", path, errno);
    }
  }

 private:
  Descriptor opened_to_read(const std::string& path, struct stat& info) const {
    const NameInFolder at = anchor_.resolve(path);
    // Checked before opening, which may affect a device or wake the other end of a pipe.
    if (::fstatat(at.folder, at.name, &info, 0) != 0) fail("read", path, errno);
    require_file(info, path);
    Descriptor fd = open_again(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!fd || ::fstat(fd.get(), &info) != 0) fail("read", path, errno);
    require_file(info, path);
    require_data(fd.get(), info, path);
    return fd;
  }

  // Returns 0 at the end.
  static size_t read_some(int fd, std::span<std::byte> to, const std::string& path) {
    for (;;) {
      const ssize_t got = ::read(fd, to.data(), to.size());
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) fail("read", path, errno);
    }
  }

  // open() may be interrupted on slow devices and network file systems, so EINTR is retried.
  Descriptor open_again(const std::string& path, int flags) const {
    const NameInFolder at = anchor_.resolve(path);
    int fd;
    do fd = ::openat(at.folder, at.name, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 || fd > STDERR_FILENO) return Descriptor(fd);
    // A program without a Runtime may have closed its standard output: what it prints must not go
    // into this file.
    const Descriptor low(fd);
    return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  }

  // Returns false if the path does not exist.
  bool status(const std::string& path, struct stat& result) const {
    const NameInFolder at = anchor_.resolve(path);
    if (::fstatat(at.folder, at.name, &result, 0) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail("look at", path, errno);
  }

  const Anchor anchor_;
};

}  // namespace

FileSystem& local_files() {
  // Never destroyed: threads may still write while the program ends.
  static LocalFiles* const files = new LocalFiles;
  return *files;
}

std::unique_ptr<FileSystem> files_anchored_in(const std::string& folder) {
  return std::make_unique<LocalFiles>(Anchor(folder));
}

void write_atomically(FileSystem& files, const std::string& path,
                      const std::function<void(WritableFile& file)>& write) {
  const std::string temporary = path + ".tmp";
  try {
    std::unique_ptr<WritableFile> file = files.open(temporary, false);
    write(*file);
    file->sync();
    file.reset();
    files.rename(temporary, path);
    files.sync_folder(folder_of(path));
  } catch (...) {
    try {
      files.remove(temporary);
    } catch (...) {  // the first error is the one that matters
    }
    throw;
  }
}

void write_atomically(FileSystem& files, const std::string& path,
                      std::span<const std::byte> bytes) {
  write_atomically(files, path, [&](WritableFile& file) { file.append(bytes); });
}

void write_atomically(FileSystem& files, const std::string& path, std::string_view text) {
  write_atomically(files, path, as_bytes(text));
}

void make_folders(FileSystem& files, const std::string& folder) {
  if (&files == &local_files()) refuse_address(folder);
  std::vector<std::string> missing;
  for (std::string f = folder; !files.exists(f); f = folder_of(f)) {
    missing.push_back(f);
    if (f == "." || f == "/") break;
  }
  if (missing.empty() && !files.is_folder(folder)) files.make_folder(folder);  // throws: no folder
  for (; !missing.empty(); missing.pop_back()) {
    files.make_folder(missing.back());
    // Without a durable name, synced content inside would be lost in a power failure.
    files.sync_folder(folder_of(missing.back()));
  }
}

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty() || name.starts_with('/')) return std::string(name);
  std::string path(folder);
  if (path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string folder_of(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  path = path.substr(0, slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  return path.empty() ? "/" : std::string(path);
}

std::string read_text(FileSystem& files, const std::string& path) {
  const std::vector<std::byte> bytes = files.read(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep
