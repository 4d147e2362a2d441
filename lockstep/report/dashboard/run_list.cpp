#include "lockstep/report/dashboard/run_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/report/pages/run_options.h"
#include "lockstep/report/pages/sweep_page.h"
#include "lockstep/runs/folders/growing_lines.h"
#include "lockstep/runs/folders/run_facts.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/store/run_filter.h"
#include "lockstep/runs/store/run_store.h"
#include "lockstep/runs/store/stored_run.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kLevels = 3;
constexpr auto kSearchEvery = std::chrono::seconds(3);
constexpr size_t kMostRuns = 20'000;
constexpr size_t kMostNames = 60;  // of options that differ
constexpr int64_t kMostBytesAtOnce = int64_t{64} << 20;

// What tells that a file has changed.
struct Mark {
  int64_t size = -1, seconds = 0, nanoseconds = 0;
  uint64_t number = 0;  // another one where a file has replaced it, also at the same moment
  friend bool operator==(const Mark&, const Mark&) = default;
};

Mark mark_of(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return {};
  return {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ino};
}

std::string id_of(const std::string& folder) {
  return digest_of(folder.data(), folder.size()).to_string().substr(0, 16);
}

bool holds_run(const std::filesystem::path& folder) {
  std::error_code none;
  return (std::filesystem::exists(folder / "job.json", none) ||
          std::filesystem::exists(folder / "log.jsonl", none)) &&
         !is_batch_folder(local_files(), folder.string());
}

void find_runs(const std::filesystem::path& folder, int levels, std::vector<std::string>& found,
               std::vector<std::string>& sweeps) {
  if (found.size() >= kMostRuns) return;
  if (holds_sweep(folder.string())) sweeps.push_back(folder.string());
  if (holds_run(folder)) {
    found.push_back(folder.string());
    return;
  }
  if (levels == 0) return;
  std::error_code error;
  std::vector<std::filesystem::path> below;
  for (std::filesystem::directory_iterator i(folder, error), end; !error && i != end;
       i.increment(error)) {
    std::error_code none;
    if (i->is_directory(none) && !i->is_symlink(none)) below.push_back(i->path());
  }
  std::sort(below.begin(), below.end());
  for (const auto& path : below) find_runs(path, levels - 1, found, sweeps);
}

// As `lockstep runs list` names it.
std::string name_of(const std::string& folder, const RunFacts& facts) {
  StoredRun run;
  run.folder = stored_folder(folder, facts);
  run.facts = facts;
  return run_name(run);
}

// A run as it was last read.
struct Entry {
  std::string folder;
  Mark state, log, notes, facts;
  bool running = false;
  int64_t changed = 0;
  GrowingLines lines;
  ordered_json summary = ordered_json::object();

  void read_log(const std::string& path);
  void read_line(std::string_view line);
  void read_metrics(const ordered_json& metrics);
};

// Of iterations only the last line counts, so that the lines between are not parsed.
void Entry::read_log(const std::string& path) {
  std::string last;
  bool reset = false;
  const auto forget = [&] {
    if (!lines.restarted() || std::exchange(reset, true)) return;
    for (const char* key : {"best_loss", "best_accuracy", "metrics", "best"}) summary.erase(key);
  };
  lines.follow(
      path,
      [&](std::string_view line) {
        forget();
        if (line.find("\"validation_loss\"") != std::string_view::npos) {
          read_line(line);
        } else if (line.find("\"loss\"") != std::string_view::npos) {
          last = line;
        }
      },
      kMostBytesAtOnce);
  forget();
  if (!last.empty()) read_line(last);
  summary["damage"] = lines.overlong()     ? ordered_json(overlong_note("log.jsonl"))
                      : lines.unreadable() ? ordered_json("log.jsonl cannot be read")
                                           : ordered_json();
}

void Entry::read_line(std::string_view line) {
  const ordered_json json = parse_json_or_discard<ordered_json>(line);
  if (!json.is_object()) return;
  const auto take = [&](const char* from, const char* to) {
    const auto found = json.find(from);
    if (found != json.end() && found->is_number()) summary[to] = *found;
    return found != json.end() && found->is_number();
  };
  const auto better = [&](const char* from, const char* best, bool lower) {
    if (!summary.contains(best) ||
        (lower ? summary[from].get<double>() < summary[best].get<double>()
               : summary[from].get<double>() > summary[best].get<double>())) {
      summary[best] = summary[from];
    }
  };
  if (json.contains("validation_loss")) {
    if (take("validation_loss", "validation_loss")) better("validation_loss", "best_loss", true);
    if (take("validation_accuracy", "validation_accuracy")) {
      better("validation_accuracy", "best_accuracy", false);
    }
    const ordered_json metrics = json.value("validation_metrics", ordered_json());
    if (metrics.is_object()) read_metrics(metrics);
    return;
  }
  take("iteration", "iteration");
  take("epoch", "epoch");
  take("elapsed", "elapsed");
  take("loss", "loss");
  take("accuracy", "accuracy");
  take("learning_rate", "rate");
}

void Entry::read_metrics(const ordered_json& metrics) {
  for (const auto& [name, value] : metrics.items()) {
    summary["metrics"][name] = value;
    if (!value.is_number()) continue;
    ordered_json& best = summary["best"][name];
    const bool larger = larger_values_are_better(name);
    if (!best.is_number() || (larger ? value.get<double>() > best.get<double>()
                                     : value.get<double>() < best.get<double>())) {
      best = value;
    }
  }
}

}  // namespace

struct RunList::State {
  State(std::vector<std::string> where, std::string runs)
      : folders(std::move(where)), store(std::move(runs)) {}

  const std::vector<std::string> folders;
  const std::string store;
  mutable Mutex mutex;
  std::map<std::string, Entry> entries LOCKSTEP_GUARDED_BY(mutex);       // by id
  std::map<std::string, std::string> sweeps LOCKSTEP_GUARDED_BY(mutex);  // folders by id
  int64_t version LOCKSTEP_GUARDED_BY(mutex) = 0;
  Clock::time_point searched LOCKSTEP_GUARDED_BY(mutex) = {};

  // Of filters. A long log is read without holding up the list.
  Mutex filter_mutex;
  std::map<std::string, StoredRunFollower> followers LOCKSTEP_GUARDED_BY(filter_mutex);

  void search() LOCKSTEP_REQUIRES(mutex);
  bool follow(Entry& entry) LOCKSTEP_REQUIRES(mutex);
};

RunList::RunList(std::vector<std::string> folders, std::string store)
    : state_(std::make_unique<State>(std::move(folders), std::move(store))) {}
RunList::~RunList() = default;

void RunList::State::search() {
  std::vector<std::string> found, found_sweeps;
  for (const std::string& folder : folders) find_runs(folder, kLevels, found, found_sweeps);
  sweeps.clear();
  for (const std::string& folder : found_sweeps) sweeps[id_of(folder)] = folder;
  std::map<std::string, Entry> kept;
  for (const std::string& folder : found) {
    const std::string id = id_of(folder);
    const auto known = entries.find(id);
    if (known != entries.end()) {
      kept.insert(entries.extract(known));
    } else {
      kept[id].folder = folder;
    }
  }
  if (!entries.empty()) ++version;  // runs were removed
  entries = std::move(kept);
}

// Returns whether the summary has changed.
bool RunList::State::follow(Entry& e) {
  const auto path = [&](const char* name) { return join_path(e.folder, name); };
  bool changed = false;
  const auto updated = [&](Mark& mark, const char* name) {
    const Mark now = mark_of(path(name));
    if (mark == now && e.changed > 0) return false;
    mark = now;
    return changed = true;
  };
  const bool first = e.changed == 0;
  if (updated(e.notes, run_notes_name)) {
    const RunNotes notes = read_run_notes(local_files(), e.folder);
    e.summary["tags"] = notes.tags;
    e.summary["note"] = notes.note;
  }
  if (updated(e.facts, run_facts_name)) {
    const RunFacts facts = read_run_facts(local_files(), e.folder);
    e.summary["folder"] = printable(e.folder);
    e.summary["name"] = printable(name_of(e.folder, facts));
    e.summary["iterations"] =
        facts.iterations > 0 ? ordered_json(facts.iterations) : ordered_json();
    e.summary["iterations_per_epoch"] = facts.iterations_per_epoch;
    e.summary["created"] = printable(facts.created);
    e.summary["scores"] = ordered_json::object();
    for (const RunScore& score : facts.scores) e.summary["scores"][score.name] = score.value;
  }
  // A process that was killed leaves the state `running`; the lock tells.
  if (updated(e.state, run_state_name) || e.running || first) {
    const RunState state = run_state(local_files(), e.folder);
    const std::string status = to_string(state.status);
    changed |= e.summary.value("status", "") != status;
    e.running = state.status == RunStatus::running;
    e.summary["status"] = status;
    e.summary["reason"] = printable(state.reason);
    e.summary["time"] = printable(state.time);
  }
  const bool rest = e.lines.bytes_read() < e.log.size && !e.lines.overlong();
  if (updated(e.log, "log.jsonl") || rest) {
    // A rest that cannot be read changes nothing.
    const ordered_json before = e.summary;
    e.read_log(path("log.jsonl"));
    changed |= e.summary != before;
  }
  return changed;
}

void RunList::refresh() {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  const auto now = Clock::now();
  const bool rarely = now - s.searched > kSearchEvery;
  if (rarely) {
    s.search();
    s.searched = Clock::now();
  }
  for (auto& [id, entry] : s.entries) {
    const bool is_new = entry.changed == 0;
    // Most runs of a long list have ended; that one of them goes on is seen a little later.
    if (!is_new && !entry.running && !rarely) continue;
    if (!s.follow(entry) && !is_new) continue;
    entry.summary["id"] = id;
    entry.changed = ++s.version;
  }
}

ordered_json RunList::summaries(int64_t since) const {
  const MutexLock lock(state_->mutex);
  ordered_json list = ordered_json::array();
  for (const auto& [id, entry] : state_->entries) {
    if (entry.changed > since) list.push_back(entry.summary);
  }
  return list;
}

int64_t RunList::version() const {
  const MutexLock lock(state_->mutex);
  return state_->version;
}

std::string RunList::folder(const std::string& id) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->entries.find(id);
  if (found != state_->entries.end()) return found->second.folder;
  const auto sweep = state_->sweeps.find(id);
  return sweep == state_->sweeps.end() ? "" : sweep->second;
}

std::vector<std::string> RunList::fitting(const std::string& text) {
  const RunFilter filter(text);
  State& s = *state_;
  std::map<std::string, std::string> folders;  // by id
  {
    const MutexLock lock(s.mutex);
    for (const auto& [id, entry] : s.entries) folders.emplace(id, entry.folder);
  }
  std::map<std::string, int64_t> numbers;  // of the run store, by folder
  if (!s.store.empty() && text.find("number") != std::string::npos) {
    for (const StoredRun& run : RunStore(s.store).runs()) numbers[run.folder] = run.number;
  }
  const MutexLock lock(s.filter_mutex);
  std::erase_if(s.followers, [&](const auto& one) { return !folders.contains(one.first); });
  std::vector<StoredRun> runs;
  std::map<std::string, std::string> ids;  // by folder as the filter sees it
  for (const auto& [id, folder] : folders) {
    StoredRun run = s.followers.try_emplace(id, folder).first->second.read();
    const auto number = numbers.find(run.folder);
    if (number != numbers.end()) run.number = number->second;
    ids.emplace(run.folder, id);
    runs.push_back(std::move(run));
  }
  std::vector<std::string> fitting;
  for (const StoredRun& run : filter.of(runs)) fitting.push_back(ids.at(run.folder));
  return fitting;
}

ordered_json RunList::differences(const std::vector<std::string>& ids) const {
  std::vector<std::string> chosen = ids, folders;
  {
    const MutexLock lock(state_->mutex);
    if (chosen.empty()) {
      for (const auto& [id, entry] : state_->entries) chosen.push_back(id);
    }
    std::vector<std::string> known;
    for (std::string& id : chosen) {
      if (state_->entries.contains(id)) known.push_back(std::move(id));
    }
    chosen = std::move(known);
    for (const std::string& id : chosen) folders.push_back(state_->entries.at(id).folder);
  }
  ordered_json json = differing_options(folders, kMostNames);
  ordered_json values = ordered_json::object();
  for (size_t i = 0; i < chosen.size(); ++i) values[chosen[i]] = std::move(json["values"][i]);
  json["values"] = std::move(values);
  return json;
}

ordered_json RunList::sweeps() const {
  const MutexLock lock(state_->mutex);
  ordered_json list = ordered_json::array();
  for (const auto& [id, folder] : state_->sweeps) {
    list.push_back({{"id", id}, {"folder", printable(folder)}});
  }
  return list;
}

void RunList::annotate(const std::string& id, const std::vector<std::string>& tags,
                       const std::string& note) {
  const std::string where = folder(id);
  if (where.empty()) throw InvalidArgument("[dashboard] there is no run " + printable(id));
  if (tags.size() > 100 || note.size() > 10'000) {
    throw InvalidArgument("[dashboard] a run may have 100 tags and a note of 10,000 bytes");
  }
  for (const std::string& tag : tags) {
    if (tag.size() > 100) throw InvalidArgument("[dashboard] a tag may have 100 bytes");
  }
  RunNotes notes = read_run_notes(local_files(), where);
  notes.tags = tags;
  std::sort(notes.tags.begin(), notes.tags.end());
  notes.tags.erase(std::unique(notes.tags.begin(), notes.tags.end()), notes.tags.end());
  notes.note = note;
  write_run_notes(local_files(), where, notes);
  const MutexLock lock(state_->mutex);
  const auto found = state_->entries.find(id);
  if (found != state_->entries.end() && state_->follow(found->second)) {
    found->second.changed = ++state_->version;
  }
}

}  // namespace lockstep
