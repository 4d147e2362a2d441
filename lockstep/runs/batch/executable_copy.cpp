#include "lockstep/runs/batch/executable_copy.h"

#include <fcntl.h>
#include <link.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/own_executable.h"
#include "lockstep/runs/batch/batch_files.h"

namespace lockstep {
namespace {

constexpr const char* executables_name = "executables";
constexpr int keep_attempts = 5;
constexpr int making_seconds = 3600;  // that a copy never takes

[[noreturn]] void fail_at(const std::string& what, int error) {
  throw FileError("[batch] " + what + ": " + std::system_category().message(error));
}

Descriptor open_to_read(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail_at("cannot open " + path, errno);
  return file;
}

// Calls `take` with each chunk of the file.
template <class Take>
void read_chunks(const std::string& path, int file, const Take& take) {
  std::vector<char> chunk(size_t{1} << 20);
  for (;;) {
    const ssize_t count = ::read(file, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_at("cannot read " + path, errno);
    if (count == 0) return;
    take(std::string_view(chunk.data(), static_cast<size_t>(count)));
  }
}

std::string digest_of_file(const std::string& path) {
  Digester digester;
  read_chunks(path, open_to_read(path).get(),
              [&](std::string_view chunk) { digester.bytes(chunk.data(), chunk.size()); });
  return digester.finish().to_string();
}

void write_chunk(const std::string& path, int file, std::string_view chunk) {
  while (!chunk.empty()) {
    const ssize_t count = ::write(file, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_at("cannot write " + path, errno);
    chunk.remove_prefix(static_cast<size_t>(count));
  }
}

// Copies into a new file of the user alone, shares its blocks where the file system can, and
// returns when the copy is on stable storage. A hard link to the original would change with it.
void copy_durably(const std::string& from, const std::string& to) {
  const Descriptor source = open_to_read(from);
  ::unlink(to.c_str());
  const Descriptor target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
  if (!target) fail_at("cannot make " + to, errno);
  try {
    if (::ioctl(target.get(), FICLONE, source.get()) != 0) {
      read_chunks(from, source.get(),
                  [&](std::string_view chunk) { write_chunk(to, target.get(), chunk); });
    }
    if (::fsync(target.get()) != 0) fail_at("cannot write " + to, errno);
  } catch (...) {
    ::unlink(to.c_str());
    throw;
  }
}

// Makes `path` a file with the content of `from`, which has this digest: a link to the shared
// copy.
void keep_shared(const std::string& shared, const std::string& from, const std::string& digest,
                 const std::string& path) {
  const std::string copy = join_path(shared, digest);
  for (int attempt = 1; attempt <= keep_attempts; ++attempt) {
    if (::link(copy.c_str(), path.c_str()) == 0) return;
    if (errno != ENOENT) break;  // the file system has no hard links, or no more of this file
    const std::string making = copy + ".making-" + std::to_string(::getpid());
    copy_durably(from, making);
    // Linked before it gets its name, so that no process takes it for unused.
    const bool linked = ::link(making.c_str(), path.c_str()) == 0;
    if (!linked || ::rename(making.c_str(), copy.c_str()) != 0) ::unlink(making.c_str());
    if (linked) return;
    break;
  }
  copy_durably(from, path);
}

// Whether the program looks for libraries in folders relative to itself.
int has_relative_libraries(dl_phdr_info* info, size_t, void* result) {
  // The first object is the program.
  const char* strings = nullptr;
  std::vector<size_t> paths;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_RUNPATH || entry->d_tag == DT_RPATH) {
        paths.push_back(entry->d_un.d_val);
      }
    }
  }
  for (const size_t path : paths) {
    if (strings != nullptr &&
        std::string_view(strings + path).find("ORIGIN") != std::string::npos) {
      *static_cast<bool*>(result) = true;
    }
  }
  return 1;
}

}  // namespace

KeptExecutable keep_executable(const std::string& jobs_folder, const std::string& folder) {
  std::error_code error;
  const auto original = std::filesystem::read_symlink(own_executable_file, error);
  if (error) fail_at(own_executable_file, error.value());
  const std::string digest = own_executable_digest();
  bool relative = false;
  ::dl_iterate_phdr(has_relative_libraries, &relative);
  if (relative) return {original.string(), digest};
  const std::string shared = join_path(jobs_folder, executables_name);
  make_folders(local_files(), shared);
  const std::string path = join_path(folder, batch_executable_name);
  keep_shared(shared, own_executable_file, digest, path);
  if (const std::string library = cuda_library_of(original.string()); !library.empty()) {
    keep_shared(shared, library, digest_of_file(library), join_path(folder, cuda_library_name));
  }
  return {path, digest};
}

void remove_unused_executables(const std::string& jobs_folder) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(join_path(jobs_folder, executables_name), error)) {
    struct stat status;
    if (::stat(entry.path().c_str(), &status) != 0 || status.st_nlink != 1) continue;
    // One that is being made. If its process was killed, it is not written any more.
    const bool in_making = entry.path().string().find(".making-") != std::string::npos;
    if (in_making && std::time(nullptr) - status.st_mtime < making_seconds) continue;
    ::unlink(entry.path().c_str());
  }
}

std::string own_executable_digest() { return digest_of_file(own_executable_file); }

}  // namespace lockstep
