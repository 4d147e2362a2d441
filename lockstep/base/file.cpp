#include "lockstep/base/file.h"

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

namespace lockstep {
namespace {

[[noreturn]] void fail(const char* doing, const std::string& path, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) hint = "free some space, or choose another folder";
  throw FileError("[file] cannot " + std::string(doing) + " " + path + ": " +
                      std::system_category().message(error),
                  hint);
}

// open() may be interrupted on slow devices and network file systems.
int open_again(const std::string& path, int flags) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { ::close(fd_); }  // never again after EINTR: Linux has freed it
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class LocalFile : public WritableFile {
 public:
  LocalFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        fail("write", path_, errno);
      }
      if (written == 0) fail("write", path_, ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  void sync() override {
    while (::fdatasync(fd_.get()) != 0) {
      if (errno == EINTR) continue;
      if (errno == EINVAL) return;  // a pipe or a device: there is nothing to be stored
      fail("sync", path_, errno);
    }
  }

 private:
  Descriptor fd_;
  std::string path_;
};

// False where nothing has that name.
bool status(const std::string& path, struct stat& result) {
  if (::stat(path.c_str(), &result) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  fail("look at", path, errno);
}

class LocalFiles : public FileSystem {
 public:
  std::vector<std::byte> read(const std::string& path) override {
    const int opened = open_again(path, O_RDONLY);
    if (opened < 0) fail("read", path, errno);
    const Descriptor fd(opened);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) fail("read", path, errno);
    // The size is a guess only: files grow, and those of /proc say 0.
    std::vector<std::byte> bytes(static_cast<size_t>(std::max<off_t>(info.st_size, 0)) + 1);
    size_t filled = 0;
    for (;;) {
      if (filled == bytes.size()) bytes.resize(bytes.size() * 2);
      const ssize_t got = ::read(fd.get(), bytes.data() + filled, bytes.size() - filled);
      if (got < 0) {
        if (errno == EINTR) continue;
        fail("read", path, errno);
      }
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    bytes.resize(filled);
    return bytes;
  }

  std::unique_ptr<WritableFile> open(const std::string& path, bool append) override {
    const int fd = open_again(path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC));
    if (fd < 0) fail("open", path, errno);
    return std::make_unique<LocalFile>(fd, path);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      fail("rename", from + " to " + to, errno);
    }
  }

  void sync_folder(const std::string& folder) override {
    const int opened = open_again(folder, O_RDONLY | O_DIRECTORY);
    if (opened < 0) fail("sync folder", folder, errno);
    const Descriptor fd(opened);
    while (::fsync(fd.get()) != 0) {
      if (errno == EINTR) continue;
      if (errno == EINVAL) return;  // the file system does not do it for folders
      fail("sync folder", folder, errno);
    }
  }

  void make_folder(const std::string& folder) override {
    if (::mkdir(folder.c_str(), 0777) == 0) return;
    const int error = errno;
    if (error != EEXIST || !is_folder(folder)) fail("make folder", folder, error);
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
    const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(folder.c_str()), ::closedir);
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
    if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
      fail("remove", path, errno);
    }
  }
};

}  // namespace

FileSystem& local_files() {
  // Never destroyed: threads may still write while the program ends.
  static LocalFiles* const files = new LocalFiles;
  return *files;
}

void write_atomically(FileSystem& files, const std::string& path,
                      std::span<const std::byte> bytes) {
  const std::string temporary = path + ".tmp";
  try {
    std::unique_ptr<WritableFile> file = files.open(temporary, false);
    file->append(bytes);
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

void write_atomically(FileSystem& files, const std::string& path, std::string_view text) {
  write_atomically(files, path, as_bytes(text));
}

void make_folders(FileSystem& files, const std::string& folder) {
  std::vector<std::string> missing;
  for (std::string f = folder; !files.exists(f); f = folder_of(f)) {
    missing.push_back(f);
    if (f == "." || f == "/") break;
  }
  if (missing.empty() && !files.is_folder(folder)) files.make_folder(folder);  // says what is there
  for (; !missing.empty(); missing.pop_back()) {
    files.make_folder(missing.back());
    // Without its name whatever is synced inside is lost with the power.
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
