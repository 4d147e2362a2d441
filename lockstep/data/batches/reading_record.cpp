#include "lockstep/data/batches/reading_record.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/data/images/image.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "records have little-endian numbers");

constexpr size_t kMostRecords = 64;
constexpr const char* kForm = "lockstep reading 2";

// The results of a reading depend on the build and on `decoders`, which can be shared libraries.
std::optional<Digest> key_of(const ExampleCache& cache, const std::string& decoders) {
  const bool images = std::all_of(cache.inputs().begin(), cache.inputs().end(),
                                  [](const auto& v) { return v.kind == ValueKind::image; });
  if (!images || (cache.target() != nullptr && cache.target()->kind != ValueKind::image)) {
    return std::nullopt;
  }
  const std::optional<Digest> files = cache.store()->file_state();
  if (!files) return std::nullopt;
  const std::string build = build_id_of(reinterpret_cast<const void*>(&key_of));
  if (build == "none") return std::nullopt;
  Digester digester;
  digester.add(kForm);
  digester.add(build);
  digester.add(decoders);
  digester.add(*files);
  digester.add(static_cast<uint64_t>(cache.size()));
  digester.add(static_cast<uint64_t>(cache.images()));
  digester.add(static_cast<uint64_t>(cache.inputs().size()));
  for (const CachedValue& input : cache.inputs()) {
    digester.add(input.shape.to_string());
    digester.add(static_cast<uint64_t>(input.from));
  }
  if (cache.target() != nullptr) digester.add(cache.target()->shape.to_string());
  return digester.finish();
}

struct Record {
  std::vector<Digest> contents;
  std::vector<ChannelStatistics> statistics;
  std::vector<std::string> notices;
};

class Writer {
 public:
  template <class T>
  void values(const std::vector<T>& all) {
    number(all.size());
    const auto* const first = reinterpret_cast<const char*>(all.data());
    text_.append(first, all.size() * sizeof(T));
  }
  void number(uint64_t n) { text_.append(reinterpret_cast<const char*>(&n), sizeof n); }
  std::string finish() {
    Digester digester;
    digester.add(text_);
    const Digest digest = digester.finish();
    return text_.append(reinterpret_cast<const char*>(&digest), sizeof digest);
  }

 private:
  std::string text_;
};

// Reads what Writer wrote. Throws DataError where a text ends too early.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {
    Digest stored;
    if (text.size() < sizeof stored) refuse();
    rest_.remove_suffix(sizeof stored);
    std::memcpy(&stored, text.data() + rest_.size(), sizeof stored);
    Digester digester;
    digester.add(rest_);
    if (digester.finish() != stored) refuse();
  }
  uint64_t number() {
    uint64_t n = 0;
    std::memcpy(&n, take(sizeof n), sizeof n);
    return n;
  }
  template <class T>
  std::vector<T> values() {
    const uint64_t count = number();
    if (count > rest_.size() / sizeof(T)) refuse();
    std::vector<T> all(count);
    if (count > 0) std::memcpy(all.data(), take(count * sizeof(T)), count * sizeof(T));
    return all;
  }

 private:
  [[noreturn]] static void refuse() { throw DataError("[reading record] the record is damaged"); }
  const char* take(size_t bytes) {
    if (bytes > rest_.size()) refuse();
    const char* const at = rest_.data();
    rest_.remove_prefix(bytes);
    return at;
  }
  std::string_view rest_;
};

std::string text_of(const Record& record) {
  Writer writer;
  writer.values(record.contents);
  writer.number(record.statistics.size());
  for (const ChannelStatistics& s : record.statistics) {
    writer.number(s.count);
    writer.values(s.sum);
    writer.values(s.sum_of_squares);
    writer.values(s.min);
    writer.values(s.max);
  }
  writer.number(record.notices.size());
  for (const std::string& notice : record.notices) {
    writer.values(std::vector<char>(notice.begin(), notice.end()));
  }
  return writer.finish();
}

Record record_of(std::string_view text) {
  Reader reader(text);
  Record record;
  record.contents = reader.values<Digest>();
  for (uint64_t n = reader.number(); n > 0; --n) {
    ChannelStatistics s;
    s.count = reader.number();
    s.sum = reader.values<uint64_t>();
    s.sum_of_squares = reader.values<uint64_t>();
    s.min = reader.values<uint8_t>();
    s.max = reader.values<uint8_t>();
    record.statistics.push_back(std::move(s));
  }
  for (uint64_t n = reader.number(); n > 0; --n) {
    const std::vector<char> notice = reader.values<char>();
    record.notices.emplace_back(notice.begin(), notice.end());
  }
  return record;
}

double worthwhile_seconds() {
  const std::string text = variable("LOCKSTEP_KEPT_READING_SECONDS");
  return text.empty() ? 1 : std::strtod(text.c_str(), nullptr);
}

std::string folder_of_records() {
  const std::string folder = find_cache_folder();
  return folder.empty() ? folder : join_path(folder, "images");
}

std::optional<Record> find_record(const std::string& path, const ExampleCache& cache) {
  FileSystem& files = local_files();
  try {
    if (!files.exists(path)) return std::nullopt;
    Record record = record_of(read_text(files, path));
    bool fits = static_cast<int64_t>(record.contents.size()) == cache.size() &&
                record.statistics.size() == cache.inputs().size();
    for (size_t i = 0; fits && i < record.statistics.size(); ++i) {
      const ChannelStatistics& s = record.statistics[i];
      const auto channels = static_cast<size_t>(cache.inputs()[i].channels());
      fits = s.sum.size() == channels && s.sum_of_squares.size() == channels &&
             s.min.size() == channels && s.max.size() == channels;
    }
    if (fits) return record;
  } catch (const Error&) {
  }
  return std::nullopt;
}

// Keeps the newest records.
void remove_old(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::vector<std::pair<fs::file_time_type, fs::path>> all;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;
    if (const auto time = at->last_write_time(gone); !gone) all.emplace_back(time, at->path());
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i + kMostRecords < all.size(); ++i) fs::remove(all[i].second, failed);
}

void keep_record(const std::string& folder, const std::string& path, const Record& record) {
  try {
    make_folders(local_files(), folder);
    write_atomically(local_files(), path, text_of(record));
    remove_old(folder);
  } catch (const Error&) {  // a full disk; the next training reads the images again
  }
}

}  // namespace

ExampleCache::Contents read_or_recall(const ExampleCache& cache, ThreadPool& pool,
                                      const std::function<void(int64_t)>& progress,
                                      std::vector<std::string>& notices,
                                      const std::string& decoders) {
  const std::string folder = folder_of_records();
  const auto key_now = [&] {
    return key_of(cache, decoders.empty() ? image_library_builds() : decoders);
  };
  const std::optional<Digest> key = folder.empty() ? std::nullopt : key_now();
  if (!key) return cache.fill(pool, progress);
  const std::string path = join_path(folder, key->to_string());
  if (std::optional<Record> record = find_record(path, cache)) {
    notices.insert(notices.end(), record->notices.begin(), record->notices.end());
    if (progress) progress(cache.size());
    return cache.recall(std::move(record->contents), std::move(record->statistics), [path] {
      std::error_code failed;
      std::filesystem::remove(path, failed);
    });
  }
  const std::vector<std::string> told = cache.store()->notices();
  const auto begun = std::chrono::steady_clock::now();
  ExampleCache::Contents read = cache.fill(pool, progress);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  // Not if a file has changed while it was read.
  if (took.count() >= worthwhile_seconds() && key_now() == key) {
    // Not what the datastore tells without reading: that need not be true of a later listing.
    std::vector<std::string> found = cache.store()->notices();
    std::erase_if(found, [&](const std::string& notice) {
      return std::find(told.begin(), told.end(), notice) != told.end();
    });
    keep_record(folder, path, {cache.contents(), read.statistics, std::move(found)});
  }
  return read;
}

}  // namespace lockstep
