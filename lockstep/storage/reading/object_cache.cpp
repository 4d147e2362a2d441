#include "lockstep/storage/reading/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/storage/network_wait.h"

namespace lockstep::storage {
namespace {

namespace fs = std::filesystem;

constexpr size_t digest_letters = 32;  // after the contents

std::string cache_folder() {
  const std::string folder = find_cache_folder();
  return folder.empty() ? "" : join_path(folder, "objects");
}

double cache_gigabytes() {
  const char* const text = std::getenv("LOCKSTEP_S3_CACHE_GB");
  if (text == nullptr || *text == '\0') return 10;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= 0 && value <= 1e9)) {
    throw InvalidArgument("[s3] LOCKSTEP_S3_CACHE_GB is `" + std::string(text) +
                          "`, but must be a number of gigabytes from 0");
  }
  return value;
}

}  // namespace

struct ObjectCache::State {
  std::string folder;  // "": nothing is kept
  std::string store;
  int64_t most = 0;  // bytes
  std::atomic<uint64_t> number = 0;
  Mutex mutex;
  int64_t bytes LOCKSTEP_GUARDED_BY(mutex) = -1;  // about as many are kept; -1: not counted yet

  std::string path(const std::string& bucket, const WantedObject& object) const {
    Digester digester;
    for (const std::string& part : {store, bucket, object.key, object.etag}) digester.add(part);
    digester.add(object.size);
    const std::string name = digester.finish().to_string();
    return folder + "/" + name.substr(0, 2) + "/" + name;
  }

  // Counts what is kept, and removes the oldest files if that is too much. With the lock.
  void tidy() LOCKSTEP_REQUIRES(mutex) {
    struct File {
      fs::file_time_type time;
      int64_t size;
      fs::path path;
    };
    std::vector<File> files;
    std::error_code error;
    bytes = 0;
    for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code gone;  // other processes remove files as well
      if (!entry->is_regular_file(gone)) continue;
      const auto size = static_cast<int64_t>(entry->file_size(gone));
      const auto time = entry->last_write_time(gone);
      if (gone) continue;
      files.push_back({time, size, entry->path()});
      bytes += size;
    }
    if (bytes <= most) return;
    std::sort(files.begin(), files.end(),
              [](const File& a, const File& b) { return a.time < b.time; });
    for (const File& file : files) {
      if (bytes <= most / 10 * 9) break;
      fs::remove(file.path, error);
      bytes -= file.size;
    }
  }
};

ObjectCache::ObjectCache() : state_(std::make_unique<State>()) {
  const double gigabytes = cache_gigabytes();
  state_->most = static_cast<int64_t>(gigabytes * 1e9);
  if (gigabytes > 0) state_->folder = cache_folder();
  state_->store = object_store().identity();
  std::error_code error;
  if (!state_->folder.empty() && fs::create_directories(state_->folder, error)) {
    ::chmod(state_->folder.c_str(), 0700);
  }
  if (error) state_->folder.clear();
}
ObjectCache::~ObjectCache() = default;

std::optional<std::string> ObjectCache::find(const std::string& bucket,
                                             const WantedObject& object) const {
  if (state_->folder.empty() || object.etag.empty()) return {};
  const std::string path = state_->path(bucket, object);
  if (::access(path.c_str(), R_OK) != 0) return {};
  try {
    std::string text = read_text(local_files(), path);
    if (text.size() != object.size + digest_letters) return {};
    const std::string digest = text.substr(object.size);
    text.resize(object.size);
    if (digest_of(text.data(), text.size()).to_string() != digest) return {};
    return text;
  } catch (const FileError&) {  // another process has removed it
    return {};
  }
}

void ObjectCache::keep(const std::string& bucket, const WantedObject& object,
                       const std::string& bytes) {
  State& s = *state_;
  const auto size = static_cast<int64_t>(bytes.size() + digest_letters);
  if (s.folder.empty() || object.etag.empty() || size > s.most) return;
  const std::string path = s.path(bucket, object);
  const std::string temporary =
      path + "." + std::to_string(::getpid()) + "-" + std::to_string(++s.number);
  std::error_code error;
  fs::create_directory(folder_of(path), error);
  try {
    {
      const std::unique_ptr<WritableFile> file = local_files().open(temporary, false);
      file->append(as_bytes(bytes));
      file->append(as_bytes(digest_of(bytes.data(), bytes.size()).to_string()));
    }
    // Not synced: the digest shows whether the contents survived.
    local_files().rename(temporary, path);
  } catch (const FileError&) {
    fs::remove(temporary, error);
    return;
  }
  const MutexLock lock(s.mutex);
  if (s.bytes >= 0) s.bytes += size;
  if (s.bytes < 0 || s.bytes > s.most) s.tidy();
}

bool ObjectCache::holds(const std::string& bucket, const WantedObject& object) const {
  struct stat status {};
  return !state_->folder.empty() && !object.etag.empty() &&
         ::stat(state_->path(bucket, object).c_str(), &status) == 0 &&
         static_cast<uint64_t>(status.st_size) == object.size + digest_letters;
}

std::optional<std::string> ObjectCache::find_part(const std::string& bucket,
                                                  const WantedObject& object, uint64_t offset,
                                                  uint64_t size) const {
  if (state_->folder.empty() || object.etag.empty()) return {};
  const Descriptor file(::open(state_->path(bucket, object).c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return {};
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t read =
        ::pread(file.get(), bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (read <= 0) return {};
    done += static_cast<size_t>(read);
  }
  return bytes;
}

void ObjectCache::forget(const std::string& bucket, const WantedObject& object) {
  std::error_code error;
  if (!state_->folder.empty()) fs::remove(state_->path(bucket, object), error);
}

std::shared_ptr<const void> ObjectCache::claim(const std::string& bucket,
                                               const WantedObject& object, double seconds) const {
  if (state_->folder.empty() || object.etag.empty()) return {};
  const std::string path = state_->path(bucket, object) + ".lock";
  std::error_code error;
  fs::create_directory(folder_of(path), error);
  try {
    if (seconds == 0 && file_is_locked(path)) return {};
    const TimeLimit limit(seconds);
    for (bool first = true; (first || !limit.reached()) && !holds(bucket, object); first = false) {
      if (!first && retries_stopped()) break;
      if (std::optional<FileLock> lock = FileLock::take(path)) {
        return std::shared_ptr<const void>(new FileLock(std::move(*lock)),
                                           [path](const void* held) {
                                             std::error_code gone;
                                             // The lock ends afterwards: a process that gets it
                                             // must not use the removed file.
                                             fs::remove(path, gone);
                                             delete static_cast<const FileLock*>(held);
                                           });
      }
    }
  } catch (const FileError&) {  // without a lock, two processes fetch the same
  }
  return {};
}

int64_t ObjectCache::most_bytes() const { return state_->folder.empty() ? 0 : state_->most; }

ObjectCache& object_cache() {
  static ObjectCache* const cache = new ObjectCache;  // never destroyed, like object_store()
  return *cache;
}

}  // namespace lockstep::storage
