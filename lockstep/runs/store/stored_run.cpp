#include "lockstep/runs/store/stored_run.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/runs/folders/growing_lines.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/folders/run_mirror.h"
#include "lockstep/storage/object_store.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Adds the values below `json` with dotted names. Elements of lists of objects have their names
// instead of numbers.
void flatten(const ordered_json& json, const std::string& prefix,
             std::vector<std::pair<std::string, std::string>>& into) {
  const bool objects = json.is_array() && !json.empty() && json.front().is_object();
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      flatten(value, prefix.empty() ? name : prefix + "." + name, into);
    }
  } else if (objects) {
    for (size_t i = 0; i < json.size(); ++i) {
      ordered_json element = json[i];
      std::string name = std::to_string(i + 1);
      if (element.is_object() && element.contains("name") && element["name"].is_string()) {
        name = element["name"].get<std::string>();
        element.erase("name");
      }
      flatten(element, prefix + "." + name, into);
    }
  } else {
    into.emplace_back(prefix, text_of(json));
  }
}

void add_job(FileSystem& files, const std::string& folder, StoredRun& run) {
  const std::string path = join_path(folder, "job.json");
  if (!files.exists(path)) return;
  ordered_json job;
  try {
    job = parse_json_or_discard<ordered_json>(read_text(files, path));
  } catch (const FileError&) {
  }
  if (!job.is_object()) return;
  if (job.contains("name") && job["name"].is_string()) run.name = job["name"].get<std::string>();
  run.options = options_of_job(std::move(job));
}

class Metrics {
 public:
  void add(const std::string& name, const ordered_json& value, int64_t iteration) {
    if (value.is_number()) add(name, value.get<double>(), iteration);
  }
  void add(const std::string& name, double number, int64_t iteration) {
    if (!std::isfinite(number)) return;
    const auto [at, fresh] =
        all_.try_emplace(name, MetricSummary{name, number, number, iteration, iteration});
    MetricSummary& m = at->second;
    m.last = number;
    m.last_iteration = iteration;
    if (fresh) better_.emplace(name, larger_values_are_better(name));
    if (better_.at(name) ? number > m.best : number < m.best) {
      m.best = number;
      m.best_iteration = iteration;
    }
  }
  std::vector<MetricSummary> all() const {
    std::vector<MetricSummary> list;
    for (const auto& [unused, metric] : all_) list.push_back(metric);
    return list;
  }

 private:
  std::map<std::string, MetricSummary> all_;
  std::map<std::string, bool> better_;
};

// Reads `"key":` and a finite number at the beginning of a text, and the comma after it.
template <class T>
bool take_number(std::string_view& text, std::string_view key, T& value) {
  if (!text.starts_with(key)) return false;
  const char* const begin = text.data() + key.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != ',') return false;
  if (!std::isfinite(static_cast<double>(value))) return false;
  text.remove_prefix(static_cast<size_t>(end + 1 - text.data()));
  return true;
}

// What the lines of a log say.
class LogSummary {
 public:
  void line(std::string_view text) {
    if (!iteration_line(text)) other_line(text);
  }

  Metrics metrics;
  int64_t iteration = 0, epoch = 0;

 private:
  // An iteration as ReceiptWriter writes it, without a general parser: logs have many of them.
  // Returns false for any other line.
  bool iteration_line(std::string_view text) {
    int64_t number = 0, of_epoch = 0, unused = 0;
    double loss = 0, accuracy = 0;
    if (!text.ends_with('}') || !take_number(text, "{\"iteration\":", number) ||
        !take_number(text, "\"epoch\":", of_epoch) || !take_number(text, "\"in_epoch\":", unused) ||
        !take_number(text, "\"loss\":", loss)) {
      return false;
    }
    constexpr std::string_view none = "\"accuracy\":null,";
    const bool classifies = !text.starts_with(none);
    if (classifies && !take_number(text, "\"accuracy\":", accuracy)) return false;
    metrics.add("training.loss", loss, number);
    if (classifies) metrics.add("training.accuracy", accuracy, number);
    iteration = number;
    epoch = of_epoch;
    return true;
  }

  void other_line(std::string_view text) {
    const auto line = parse_json_or_discard<ordered_json>(text);
    if (!line.is_object() || line.contains("event") || line.contains("phase")) return;
    const auto found = line.find("iteration");
    if (found == line.end() || !found->is_number_integer()) return;
    const auto number = found->get<int64_t>();
    if (line.contains("validation_loss")) {
      metrics.add("validation.loss", line["validation_loss"], number);
      if (line.contains("validation_accuracy")) {
        metrics.add("validation.accuracy", line["validation_accuracy"], number);
      }
      if (line.contains("validation_metrics") && line["validation_metrics"].is_object()) {
        for (const auto& [name, value] : line["validation_metrics"].items()) {
          metrics.add("validation." + name, value, number);
        }
      }
      return;
    }
    if (!line.contains("loss")) return;
    metrics.add("training.loss", line["loss"], number);
    if (line.contains("accuracy")) metrics.add("training.accuracy", line["accuracy"], number);
    iteration = number;
    if (line.contains("epoch") && line["epoch"].is_number_integer()) {
      epoch = line["epoch"].get<int64_t>();
    }
  }
};

void add_summary(const LogSummary& log, StoredRun& run) {
  run.iteration = log.iteration;
  run.epoch = log.epoch;
  Metrics metrics = log.metrics;
  for (const RunScore& score : run.facts.scores) {
    metrics.add(score.name, score.value, run.iteration);
  }
  run.metrics = metrics.all();
}

// The last bytes of a file, or "".
std::string tail_of(const std::string& path) {
  constexpr std::streamoff most = 4096;
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return {};
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (!file || size <= 0) return {};
  std::string text(static_cast<size_t>(std::min(size, most)), '\0');
  file.seekg(size - static_cast<std::streamoff>(text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// The last chain of the receipt, from its last complete line.
void add_receipt(const std::string& folder, StoredRun& run) {
  std::string text = tail_of(join_path(folder, "receipt.jsonl"));
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  const size_t begin = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  const auto line = parse_json_or_discard<ordered_json>(std::string_view(text).substr(begin));
  run.receipt.clear();
  if (line.is_object() && line.contains("chain") && line["chain"].is_string()) {
    run.receipt = line["chain"].get<std::string>();
  }
}

void add_artifacts(const std::string& folder, StoredRun& run) {
  std::error_code failed;
  for (std::filesystem::recursive_directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || at->path().filename() == run_lock_name) continue;
    const auto bytes = at->file_size(gone);
    if (gone) continue;
    run.artifacts.push_back(
        {at->path().lexically_relative(folder).string(), static_cast<int64_t>(bytes)});
  }
  std::sort(run.artifacts.begin(), run.artifacts.end(),
            [](const Artifact& a, const Artifact& b) { return a.name < b.name; });
}

std::string absolute_folder(const std::string& folder) {
  std::string path = std::filesystem::absolute(folder).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

RunStatus status_of(const std::string& name) {
  for (const RunStatus status : {RunStatus::running, RunStatus::interrupted, RunStatus::stopped,
                                 RunStatus::pruned, RunStatus::failed, RunStatus::finished}) {
    if (to_string(status) == name) return status;
  }
  return RunStatus::none;
}

// "" if the environment names no home.
std::string local_copy_of(const std::string& address) {
  return find_cache_folder().empty() ? "" : RunMirror::folder_for(address);
}

// The first entries had the facts next to the other fields, and variables as JSON text.
ordered_json facts_of_first_form(ordered_json entry) {
  for (ordered_json& value : entry.at("variables")) {
    value = parse_json<ordered_json>(value.get<std::string>());
  }
  return entry;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> options_of_job(ordered_json job) {
  std::vector<std::pair<std::string, std::string>> options;
  job.erase("name");
  flatten(job, "", options);
  return options;
}

bool larger_values_are_better(const std::string& metric) {
  const std::string name = metric.substr(metric.rfind('.') + 1);
  for (const char* word : {"loss", "error", "rmse", "mse", "mae", "distance", "perplexity"}) {
    if (name.find(word) != std::string::npos) return false;
  }
  return true;
}

std::string local_folder(const StoredRun& run) {
  return storage::is_address(run.folder) ? local_copy_of(run.folder) : run.folder;
}

std::string stored_folder(const std::string& folder, const RunFacts& facts) {
  std::string own = absolute_folder(folder);
  // A copy that was fetched by other means is a folder like any other.
  const std::string copy = facts.address.empty() ? "" : local_copy_of(facts.address);
  return !copy.empty() && own == absolute_folder(copy) ? facts.address : own;
}

std::string run_name(const StoredRun& run, int longer) {
  std::vector<std::string> parts;  // from the last
  for (size_t end = run.folder.find_last_not_of('/'); end != std::string::npos && end > 0;) {
    const size_t slash = run.folder.rfind('/', end);
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    if (begin <= end) parts.push_back(run.folder.substr(begin, end - begin + 1));
    end = slash == std::string::npos ? slash : slash - 1;
  }
  // Of "search/trials/3", the middle says nothing. The run of a batch job is in "3/run".
  if (run.facts.trial > 0 && parts.size() > 2 && parts[1] == "trials")
    parts.erase(parts.begin() + 1);
  size_t count = 1 + static_cast<size_t>(longer);
  if (!parts.empty() && (run.facts.trial > 0 || parts.front() == "run")) ++count;
  std::string name;
  for (size_t i = std::min(count, parts.size()); i-- > 0;) name += parts[i] + (i > 0 ? "/" : "");
  return name;
}

StoredRun read_stored_run(FileSystem& files, const std::string& folder, bool own_lock) {
  StoredRun run;
  run.state = run_state(files, folder, own_lock);
  if (run.state.status == RunStatus::none) {
    throw InvalidArgument("[store] " + folder + " is not a run folder",
                          "use a folder that lockstep train wrote");
  }
  run.facts = read_run_facts(files, folder);
  run.folder = stored_folder(folder, run.facts);
  run.notes = read_run_notes(files, folder);
  add_job(files, folder, run);
  LogSummary log;
  GrowingLines().follow(join_path(folder, "log.jsonl"),
                        [&](std::string_view line) { log.line(line); });
  add_summary(log, run);
  add_receipt(folder, run);
  add_artifacts(folder, run);
  return run;
}

struct StoredRunFollower::State {
  // What tells that a file has changed. The system's clock of files stands still for milliseconds,
  // but a file that replaces another one is always another file.
  struct Mark {
    int64_t size = -1, seconds = 0, nanoseconds = 0;
    uint64_t number = 0;
    friend bool operator==(const Mark&, const Mark&) = default;
  };

  std::string folder;
  StoredRun run;
  Mark job, state, facts, notes, receipt;
  GrowingLines lines;
  LogSummary log;

  bool changed(Mark& mark, const char* name) const {
    struct stat s {};
    const bool there = ::stat(join_path(folder, name).c_str(), &s) == 0;
    const Mark now =
        there ? Mark{s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ino} : Mark{-2};
    return std::exchange(mark, now) != now;
  }
};

StoredRunFollower::StoredRunFollower(const std::string& folder) : state_(new State) {
  state_->folder = folder;
  state_->run.folder = absolute_folder(folder);
}
StoredRunFollower::~StoredRunFollower() = default;
StoredRunFollower::StoredRunFollower(StoredRunFollower&&) noexcept = default;

const StoredRun& StoredRunFollower::read() {
  State& s = *state_;
  FileSystem& files = local_files();
  // A process that was killed leaves the state `running`; the lock tells.
  if (s.changed(s.state, run_state_name) || s.run.state.status == RunStatus::running) {
    s.run.state = run_state(files, s.folder);
  }
  if (s.changed(s.facts, run_facts_name)) s.run.facts = read_run_facts(files, s.folder);
  if (s.changed(s.notes, run_notes_name)) s.run.notes = read_run_notes(files, s.folder);
  if (s.changed(s.job, "job.json")) {
    s.run.options.clear();
    s.run.name.clear();
    add_job(files, s.folder, s.run);
  }
  bool reset = false;
  s.lines.follow(join_path(s.folder, "log.jsonl"), [&](std::string_view line) {
    if (s.lines.restarted() && !std::exchange(reset, true)) s.log = {};
    s.log.line(line);
  });
  if (s.lines.restarted() && !reset) s.log = {};
  add_summary(s.log, s.run);
  if (s.changed(s.receipt, "receipt.jsonl")) add_receipt(s.folder, s.run);
  return s.run;
}

std::string to_text(const StoredRun& run) {
  ordered_json options = ordered_json::object(), metrics = ordered_json::object(),
               artifacts = ordered_json::object();
  for (const auto& [name, value] : run.options) options[name] = value;
  for (const MetricSummary& m : run.metrics) {
    metrics[m.name] = {m.last, m.last_iteration, m.best, m.best_iteration};
  }
  for (const Artifact& a : run.artifacts) artifacts[a.name] = a.bytes;
  return text_of({{"folder", run.folder},
                  {"name", run.name},
                  {"state", to_string(run.state.status)},
                  {"reason", run.state.reason},
                  {"time", run.state.time},
                  {"state_iteration", run.state.iteration},
                  {"iteration", run.iteration},
                  {"epoch", run.epoch},
                  {"receipt", run.receipt},
                  {"facts", to_json(run.facts)},
                  {"options", options},
                  {"metrics", metrics},
                  {"artifacts", artifacts}});
}

StoredRun stored_run_of(const std::string& text) {
  StoredRun run;
  try {
    const ordered_json j = parse_json<ordered_json>(text);
    run.folder = j.at("folder").get<std::string>();
    run.name = j.at("name").get<std::string>();
    run.state = {status_of(j.at("state").get<std::string>()), j.at("reason").get<std::string>(),
                 j.at("time").get<std::string>(), j.at("state_iteration").get<int64_t>()};
    run.iteration = j.at("iteration").get<int64_t>();
    run.epoch = j.at("epoch").get<int64_t>();
    run.receipt = j.at("receipt").get<std::string>();
    run.facts = run_facts_of(j.contains("facts") ? j["facts"] : facts_of_first_form(j));
    for (const auto& [name, value] : j.at("options").items()) {
      run.options.emplace_back(name, value.get<std::string>());
    }
    for (const auto& [name, m] : j.at("metrics").items()) {
      run.metrics.push_back({name, m.at(0).get<double>(), m.at(2).get<double>(),
                             m.at(1).get<int64_t>(), m.at(3).get<int64_t>()});
    }
    for (const auto& [name, bytes] :
         j.at(j.contains("artifacts") ? "artifacts" : "artefacts").items()) {
      run.artifacts.push_back({name, bytes.get<int64_t>()});
    }
  } catch (const JsonError& e) {
    throw DataError(std::string("[store] an entry is damaged: ") + e.what());
  } catch (const ordered_json::exception& e) {
    throw DataError(std::string("[store] an entry is damaged: ") + e.what());
  }
  return run;
}

}  // namespace lockstep
