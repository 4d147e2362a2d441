#include "lockstep/runs/folders/run_mirror.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "lockstep/base/cloud/object_store.h"
#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* pointer_name = "lockstep-run.json";
constexpr double between_looks = 0.5;  // seconds

struct MirroredFile {
  std::string object;  // below the address
  uint64_t size = 0;
  std::string digest;
};
using MirroredFiles = std::map<std::string, MirroredFile>;  // by path in the run's folder

std::string folder_for(const std::string& address) {
  const std::string cache = find_cache_folder();
  if (cache.empty()) {
    throw FileError("[run] " + printable(address) + " needs a local folder, but HOME is not set");
  }
  return join_path(join_path(cache, "runs"), digest_of(address.data(), address.size()).to_string());
}

// Files of a run that others may need; not locks, requests and unfinished files.
bool is_mirrored(const std::string& name) {
  return name != "lock" && name != "stop" && !name.ends_with(".tmp") && !name.ends_with(".damaged");
}

std::string dumped(const MirroredFiles& files) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& [name, file] : files) {
    all.push_back(
        {{"name", name}, {"object", file.object}, {"bytes", file.size}, {"digest", file.digest}});
  }
  return nlohmann::ordered_json{{"version", 1}, {"files", all}}.dump(2) + "\n";
}

// The pointer may have been written by anyone: names stay within the folder.
MirroredFiles parsed_pointer(const std::string& text, const std::string& address) {
  const auto damaged = [&](const std::string& what) {
    return DataError("[run] " + printable(address) + "/" + pointer_name + " is damaged: " + what);
  };
  const auto json = parse_json_or_discard<nlohmann::json>(text);
  if (!json.is_object() || !json.contains("files") || !json["files"].is_array() ||
      json.value("version", nlohmann::json()) != 1) {
    throw damaged("it is no pointer of this version");
  }
  MirroredFiles files;
  for (const auto& entry : json["files"]) {
    const auto text_of = [&](const char* key) {
      const bool there = entry.is_object() && entry.contains(key) && entry[key].is_string();
      return there ? entry[key].template get<std::string>()
                   : throw damaged("a file has no " + std::string(key));
    };
    const std::string name = text_of("name");
    const fs::path path(name);
    const bool inside = !name.empty() && path.is_relative() && path.lexically_normal() == path &&
                        *path.begin() != ".." && name.find('\0') == std::string::npos &&
                        name.back() != '/' && name != ".";
    if (!inside) throw damaged("a file lies outside the run");
    if (!entry.contains("bytes") || !entry["bytes"].is_number_unsigned()) {
      throw damaged("a file has no size");
    }
    files[name] = {text_of("object"), entry["bytes"].get<uint64_t>(), text_of("digest")};
  }
  return files;
}

}  // namespace

struct RunMirror::State {
  std::string name;        // the address as given
  cloud::Address address;  // key: "" or ending in '/'
  std::string folder;
  std::optional<FileLock> own_lock;
  std::string etag;     // of the pointer; "": there is none
  MirroredFiles files;  // of the pointer
  bool finished = false;
  std::thread thread;
  Mutex mutex;
  ConditionVariable wake;
  bool ending LOCKSTEP_GUARDED_BY(mutex) = false;

  cloud::Address at(const std::string& key) const { return {address.bucket, address.key + key}; }

  void read_pointer() {
    const std::optional<cloud::ObjectInfo> there = cloud::object_store().look_at(at(pointer_name));
    if (!there) return;
    cloud::ReadObject read = std::move(
        cloud::object_store().read(address.bucket, {{there->key, there->size, there->etag}})[0]);
    if (!read.error.empty()) {
      throw FileError("[run] cannot read " + printable(name) + "/" + pointer_name + ": " +
                      read.error);
    }
    files = parsed_pointer(read.bytes, name);
    etag = there->etag;
  }

  void fetch() const {
    for (const auto& [path, file] : files) {
      const std::string bytes = cloud::object_store().read(at(file.object));
      if (bytes.size() != file.size ||
          digest_of(bytes.data(), bytes.size()).to_string() != file.digest) {
        throw DataError("[run] " + printable(at(file.object).to_string()) +
                        " is not the file that the run wrote");
      }
      const std::string to = join_path(folder, path);
      make_folders(local_files(), folder_of(to));
      write_atomically(local_files(), to, as_bytes(bytes));
    }
  }

  // Paths in the folder. Checkpoints first: what was written beside a checkpoint is then read after
  // it, and never older.
  std::vector<std::string> paths() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file() || !is_mirrored(entry.path().filename().string())) continue;
      found.push_back(entry.path().lexically_relative(folder).generic_string());
    }
    std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
      const bool first = a.starts_with("checkpoints/"), second = b.starts_with("checkpoints/");
      return first != second ? first : a < b;
    });
    return found;
  }

  void copy(bool whole) {
    MirroredFiles now;
    std::map<std::string, std::string> contents;
    for (const std::string& path : paths()) {
      std::string bytes;
      try {
        bytes = read_text(local_files(), join_path(folder, path));
      } catch (const FileError&) {
        if (whole || local_files().exists(join_path(folder, path))) throw;
        continue;  // an old checkpoint that was just removed
      }
      MirroredFile file;
      file.size = bytes.size();
      file.digest = digest_of(bytes.data(), bytes.size()).to_string();
      file.object = "files/" + file.digest + "-" + path.substr(path.rfind('/') + 1);
      const auto before = files.find(path);
      const bool same = before != files.end() && before->second.object == file.object;
      if (!same) cloud::object_store().write(at(file.object), bytes);
      if (whole && !path.starts_with("checkpoints/")) contents[path] = std::move(bytes);
      now[path] = std::move(file);
    }
    if (whole) {
      for (const auto& [path, bytes] : contents) cloud::object_store().write(at(path), bytes);
    }
    const std::string pointer = dumped(now);
    if (!cloud::object_store().write_if(at(pointer_name), pointer, etag)) {
      throw InvalidArgument("[run] another process has written the run " + printable(name),
                            "choose another address with --out");
    }
    const std::optional<cloud::ObjectInfo> written =
        cloud::object_store().look_at(at(pointer_name));
    etag = written ? written->etag : "";
    std::set<std::string> used;
    for (const auto& [path, file] : now) used.insert(file.object);
    for (const auto& [path, file] : files) {
      if (!used.contains(file.object)) cloud::object_store().remove(at(file.object));
    }
    files = std::move(now);
  }

  // Names of the checkpoints in the folder.
  std::string checkpoints() const {
    std::string names;
    const std::string where = join_path(folder, "checkpoints");
    if (!local_files().is_folder(where)) return names;
    for (const std::string& file : local_files().list(where)) {
      if (is_mirrored(file)) names += file + "/";
    }
    return names;
  }

  void watch() {
    std::string copied = checkpoints();
    const MutexLock lock(mutex);
    while (!ending) {
      wake.wait_until(mutex, TimeLimit(between_looks));
      if (ending) return;
      const MutexUnlock unlocked(mutex);
      try {
        const std::string now = checkpoints();
        if (now == copied) continue;
        copy(false);
        copied = now;
      } catch (const std::exception&) {  // finish() reports what lasts
      }
    }
  }

  void stop() {
    {
      const MutexLock guard(mutex);
      ending = true;
      wake.notify_all();
    }
    if (thread.joinable()) thread.join();
  }
};

RunMirror::RunMirror(std::string address, bool resume) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.name = std::move(address);
  while (s.name.ends_with('/')) s.name.pop_back();
  s.address = cloud::parsed_address(s.name);
  if (s.address.key.empty()) {
    throw InvalidArgument("[run] " + printable(s.name) + " is a bucket, not a place for a run",
                          "an address is s3://BUCKET/PREFIX");
  }
  s.address.key += '/';
  s.folder = folder_for(s.name);
  make_folders(local_files(), folder_of(s.folder));
  s.own_lock = FileLock::take(s.folder + ".lock");
  if (!s.own_lock) {
    throw InvalidArgument("[run] another process uses " + printable(s.name),
                          "wait for it, or choose another address with --out");
  }
  s.read_pointer();
  if (!resume && !s.etag.empty()) {
    throw InvalidArgument("[run] " + printable(s.name) + " contains a run",
                          "continue with --resume, or choose another address with --out");
  }
  fs::remove_all(s.folder);
  make_folders(local_files(), s.folder);
  s.fetch();
}

RunMirror::~RunMirror() {
  State& s = *state_;
  s.stop();
  std::error_code error;
  if (s.finished) fs::remove_all(s.folder, error);
}

const std::string& RunMirror::folder() const { return state_->folder; }

void RunMirror::start() {
  state_->thread = std::thread([this] { state_->watch(); });
}

void RunMirror::finish() {
  State& s = *state_;
  s.stop();
  try {
    s.copy(true);
  } catch (const FileError& error) {
    throw FileError(error.what(), "the run is in " + s.folder);
  }
  s.finished = true;
}

}  // namespace lockstep
