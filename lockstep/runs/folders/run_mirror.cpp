#include "lockstep/runs/folders/run_mirror.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/reading/read_ahead.h"

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

// Files of a run that others may need; not locks, requests and unfinished files.
bool is_mirrored(const std::string& name) {
  return name != "lock" && name != "stop" && !name.ends_with(".tmp") && !name.ends_with(".damaged");
}

std::string text_digest(const std::string& text) {
  return digest_of(text.data(), text.size()).to_string();
}

std::string dumped(const MirroredFiles& files, const std::set<std::string>& loose) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& [name, file] : files) {
    all.push_back(
        {{"name", name}, {"object", file.object}, {"bytes", file.size}, {"digest", file.digest}});
  }
  nlohmann::ordered_json pointer{{"version", 1}, {"files", all}};
  if (!loose.empty()) pointer["replaced"] = loose;
  return pointer.dump(2) + "\n";
}

constexpr std::string_view objects_folder = "files/";

// The pointer may have been written by anyone: names stay within the folder.
MirroredFiles parsed_pointer(const std::string& text, const std::string& address) {
  const auto damaged = [&](const std::string& what) {
    return DataError("[run] " + printable(address) + "/" + pointer_name + " is damaged: " + what);
  };
  const auto json = parse_json_or_discard<nlohmann::json>(text);
  if (!json.is_object() || !json.contains("files") || !json["files"].is_array() ||
      json.value("version", nlohmann::json()) != 1) {
    throw damaged("it is not a pointer of this version");
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

// The objects that a pointer lists for removal: contents of files, nothing else.
std::set<std::string> loose_of(const std::string& text) {
  const auto json = parse_json_or_discard<nlohmann::json>(text);
  std::set<std::string> objects;
  if (!json.is_object() || !json.contains("replaced") || !json["replaced"].is_array()) return {};
  for (const auto& one : json["replaced"]) {
    if (!one.is_string()) continue;
    std::string object = one.get<std::string>();
    if (object.starts_with(objects_folder)) objects.insert(std::move(object));
  }
  return objects;
}

}  // namespace

struct RunMirror::State {
  std::string name;          // the address as given, without a '/' at its end
  storage::Address address;  // key: "" or ending in '/'
  std::string folder;
  std::optional<FileLock> own_lock;
  std::string etag;     // of the pointer; "": there is none
  std::string pointer;  // its digest, or ""
  MirroredFiles files;  // of the pointer
  // Objects that no pointer of this run names any more, or not yet. They are removed when the next
  // pointer is written, which lists them, so that a later process removes what this one could not.
  std::set<std::string> loose;
  // Digests of pointers: the store's, of which the folder is a later state, and those that this
  // process, or an earlier one with this folder, has tried to write since. "": none was there.
  std::vector<std::string> known;
  std::string moved_aside;
  bool ahead = false;
  bool finished = false;
  std::thread thread;
  Mutex mutex;
  ConditionVariable wake;
  bool ending LOCKSTEP_GUARDED_BY(mutex) = false;

  storage::Address at(const std::string& key) const { return {address.bucket, address.key + key}; }

  struct Pointer {
    std::string text, etag;
  };
  // The store's at present; nothing if there is none.
  std::optional<Pointer> stored_pointer() const {
    const std::optional<storage::ObjectInfo> there =
        storage::object_store().look_at(at(pointer_name));
    if (!there) return {};
    storage::ReadObject read = std::move(
        storage::object_store().read(address.bucket, {{there->key, there->size, there->etag}})[0]);
    if (!read.error.empty()) storage::refuse_object(address.bucket, there->key, read.error);
    return Pointer{std::move(read.bytes), there->etag};
  }
  void adopt(const Pointer& stored) {
    files = parsed_pointer(stored.text, name);
    loose.merge(loose_of(stored.text));
    etag = stored.etag;
    pointer = text_digest(stored.text);
  }

  std::string notes_path() const { return folder + ".json"; }
  void note_known() const {
    write_atomically(
        local_files(), notes_path(),
        nlohmann::ordered_json{{"version", 1}, {"address", name}, {"pointers", known}}.dump(2) +
            "\n");
  }
  // Nothing for a folder of an earlier version, or one whose file is damaged.
  std::optional<std::vector<std::string>> noted() const {
    if (!local_files().exists(notes_path())) return {};
    try {
      const auto json =
          parse_json_or_discard<nlohmann::json>(read_text(local_files(), notes_path()));
      if (json.at("version") == 1) return json.at("pointers").get<std::vector<std::string>>();
    } catch (const nlohmann::json::exception&) {
    }
    return {};
  }

  // Whether the folder has results that the store has not: those of a run whose copies failed, or
  // whose process was killed.
  bool holds_more() const {
    if (!local_files().is_folder(folder)) return false;
    bool computed = false, covered = true;
    for (const std::string& path : paths()) {
      computed = computed || path == run_model_name || path.starts_with("checkpoints/");
      if (!covered) continue;
      const auto there = files.find(path);
      const std::string text = read_text(local_files(), join_path(folder, path));
      covered = there != files.end() && there->second.digest == text_digest(text);
    }
    return computed && !covered;
  }

  // Whether the folder continues what the store has now.
  bool fits() const {
    const std::optional<std::vector<std::string>> before = noted();
    if (etag.empty()) return true;
    return before && std::find(before->begin(), before->end(), pointer) != before->end();
  }

  void move_aside() {
    for (int number = 1; moved_aside.empty() || fs::exists(moved_aside); ++number) {
      moved_aside = folder + ".aside-" + std::to_string(number);
    }
    local_files().rename(folder, moved_aside);
  }

  // Into a folder that gets its name when it is whole.
  void fetch() {
    const std::string part = folder + ".part";
    fs::remove_all(part);
    fs::remove_all(folder);
    make_folders(local_files(), part);
    for (const auto& [path, file] : files) {
      if (storage::retries_stopped()) {
        throw Cancelled("[run] " + printable(name) + " was not read: a stop was requested");
      }
      const storage::Address from = at(file.object);
      const auto other = [&] {
        return DataError("[run] " + printable(from.to_string()) +
                         " is not the file that the run wrote");
      };
      const std::optional<storage::ObjectInfo> there = storage::object_store().look_at(from);
      if (there && there->size != file.size) throw other();
      const std::string etag_there = there ? there->etag : "";
      storage::ReadObject read = std::move(
          storage::object_store().read(from.bucket, {{from.key, file.size, etag_there}})[0]);
      if (!read.error.empty()) storage::refuse_object(from.bucket, from.key, read.error);
      if (text_digest(read.bytes) != file.digest) throw other();
      const std::string to = join_path(part, path);
      make_folders(local_files(), folder_of(to));
      write_atomically(local_files(), to, as_bytes(read.bytes));
    }
    local_files().rename(part, folder);
  }

  void begin(bool resume) {
    const bool more = holds_more();
    if (!resume && !etag.empty()) {
      throw InvalidArgument("[run] " + printable(name) + " contains a run",
                            "continue with --resume, or choose another address with --out");
    }
    if (!resume && more) {
      throw InvalidArgument("[run] " + folder + " has a run that did not reach " + printable(name),
                            "continue it, and copy it there, with --resume, or remove that folder");
    }
    ahead = more && fits();
    if (more && !ahead) move_aside();
    if (!ahead) fetch();
    std::vector<std::string> before = ahead ? noted().value_or(known) : known;
    known = std::move(before);
    known.push_back(pointer);
    note_known();
  }

  // Paths in the folder. Checkpoints first: what was written with a checkpoint is then read
  // after it, and never older.
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
      file.digest = text_digest(bytes);
      file.object =
          std::string(objects_folder) + file.digest + "-" + path.substr(path.rfind('/') + 1);
      const auto before = files.find(path);
      const bool same = before != files.end() && before->second.object == file.object;
      if (!same) {
        loose.insert(file.object);  // until a pointer names it
        storage::object_store().write(at(file.object), bytes);
      }
      if (whole && !path.starts_with("checkpoints/")) contents[path] = std::move(bytes);
      now[path] = std::move(file);
    }
    write_pointer(dumped(now, replaced_by(now)));
    loose = replaced_by(now);
    files = std::move(now);
    // After the pointer, so that of two processes only the one that wrote it writes these.
    for (const auto& [path, bytes] : contents) storage::object_store().write(at(path), bytes);
    remove_loose();
  }

  std::set<std::string> replaced_by(const MirroredFiles& now) const {
    std::set<std::string> objects = loose;
    for (const auto& [path, file] : files) objects.insert(file.object);
    for (const auto& [path, file] : now) objects.erase(file.object);
    return objects;
  }

  // The run is in the store, so the copy has not failed: the pointer lists what remains, and
  // the next copy removes it.
  void remove_loose() {
    try {
      while (!loose.empty()) {
        storage::object_store().remove(at(*loose.begin()));
        loose.erase(loose.begin());
      }
    } catch (const Error&) {
    }
  }

  void write_pointer(const std::string& text) {
    known.push_back(text_digest(text));
    note_known();  // before the store has it
    if (!storage::object_store().write_if(at(pointer_name), text, etag)) {
      // It may be one that this process wrote, whose answer was lost.
      const std::optional<Pointer> there = stored_pointer();
      const bool own =
          there && std::find(known.begin(), known.end(), text_digest(there->text)) != known.end();
      if (own) adopt(*there);
      if (!own || !storage::object_store().write_if(at(pointer_name), text, etag)) {
        throw InvalidArgument("[run] another process has written the run " + printable(name),
                              "choose another address with --out");
      }
    }
    const std::optional<storage::ObjectInfo> written =
        storage::object_store().look_at(at(pointer_name));
    etag = written ? written->etag : "";
    pointer = text_digest(text);
    known = {pointer};
    note_known();
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
    std::string copied = ahead ? "" : checkpoints();
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
  s.address = storage::parsed_address(s.name);
  if (s.address.key.empty()) {
    throw InvalidArgument(
        "[run] " + printable(s.name) + " is a bucket without a prefix; a run needs a prefix",
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
  if (const auto stored = s.stored_pointer()) s.adopt(*stored);
  s.begin(resume);
}

RunMirror::~RunMirror() {
  State& s = *state_;
  s.stop();
  std::error_code error;
  if (!s.finished) return;
  fs::remove_all(s.folder, error);
  fs::remove(s.notes_path(), error);
}

const std::string& RunMirror::folder() const { return state_->folder; }
const std::string& RunMirror::address() const { return state_->name; }
const std::string& RunMirror::moved_aside() const { return state_->moved_aside; }
bool RunMirror::is_ahead() const { return state_->ahead; }

std::string RunMirror::folder_for(const std::string& address) {
  const std::string cache = find_cache_folder();
  if (cache.empty()) {
    throw FileError("[run] " + printable(address) + " needs a local folder, but HOME is not set");
  }
  return join_path(join_path(cache, "runs"), text_digest(address));
}

void RunMirror::start() {
  state_->thread = std::thread([this] { state_->watch(); });
}

void RunMirror::finish(const std::string& command) {
  State& s = *state_;
  s.stop();
  const std::string where = "the run is in " + s.folder;
  const std::string hint = where + "; copy it with: " + command;
  try {
    s.copy(true);
  } catch (const Cancelled& error) {
    throw Cancelled(error.what(), hint);
  } catch (const FileError& error) {
    throw FileError(error.what(), hint);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(error.what(), where + "; " + error.hint());
  }
  s.finished = true;
}

}  // namespace lockstep
