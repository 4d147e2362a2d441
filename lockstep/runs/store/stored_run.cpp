#include "lockstep/runs/store/stored_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/runs/folders/run_folder.h"

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
  job.erase("name");
  flatten(job, "", run.options);
}

class Metrics {
 public:
  void add(const std::string& name, const ordered_json& value, int64_t iteration) {
    if (!value.is_number()) return;
    const auto number = value.get<double>();
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

void add_log(FileSystem& files, const std::string& folder, StoredRun& run, Metrics& metrics) {
  const std::string path = join_path(folder, "log.jsonl");
  if (!files.exists(path)) return;
  std::string text;
  try {
    text = read_text(files, path);
  } catch (const FileError&) {
    return;
  }
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const auto line =
        parse_json_or_discard<ordered_json>(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    if (!line.is_object() || line.contains("event") || line.contains("phase")) continue;
    const auto iteration = line.find("iteration");
    if (iteration == line.end() || !iteration->is_number_integer()) continue;
    const auto number = iteration->get<int64_t>();
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
      continue;
    }
    if (!line.contains("loss")) continue;
    metrics.add("training.loss", line["loss"], number);
    if (line.contains("accuracy")) metrics.add("training.accuracy", line["accuracy"], number);
    run.iteration = number;
    if (line.contains("epoch") && line["epoch"].is_number_integer()) {
      run.epoch = line["epoch"].get<int64_t>();
    }
  }
}

// The last chain of the receipt, from its last complete line.
void add_receipt(FileSystem& files, const std::string& folder, StoredRun& run) {
  const std::string path = join_path(folder, "receipt.jsonl");
  if (!files.exists(path)) return;
  try {
    std::string text = read_text(files, path);
    text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
    const size_t begin = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    const auto line = parse_json_or_discard<ordered_json>(text.substr(begin));
    if (line.is_object() && line.contains("chain") && line["chain"].is_string()) {
      run.receipt = line["chain"].get<std::string>();
    }
  } catch (const FileError&) {
  }
}

void add_artefacts(const std::string& folder, StoredRun& run) {
  std::error_code failed;
  for (std::filesystem::recursive_directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || at->path().filename() == run_lock_name) continue;
    const auto bytes = at->file_size(gone);
    if (gone) continue;
    run.artefacts.push_back(
        {at->path().lexically_relative(folder).string(), static_cast<int64_t>(bytes)});
  }
  std::sort(run.artefacts.begin(), run.artefacts.end(),
            [](const Artefact& a, const Artefact& b) { return a.name < b.name; });
}

RunStatus status_of(const std::string& name) {
  for (const RunStatus status : {RunStatus::running, RunStatus::interrupted, RunStatus::stopped,
                                 RunStatus::pruned, RunStatus::failed, RunStatus::finished}) {
    if (to_string(status) == name) return status;
  }
  return RunStatus::none;
}

// The first entries had the facts beside the other fields, and variables as JSON text.
ordered_json facts_of_first_form(ordered_json entry) {
  for (ordered_json& value : entry.at("variables")) {
    value = parse_json<ordered_json>(value.get<std::string>());
  }
  return entry;
}

}  // namespace

bool larger_values_are_better(const std::string& metric) {
  const std::string name = metric.substr(metric.rfind('.') + 1);
  for (const char* word : {"loss", "error", "rmse", "mse", "mae", "distance", "perplexity"}) {
    if (name.find(word) != std::string::npos) return false;
  }
  return true;
}

StoredRun read_stored_run(FileSystem& files, const std::string& folder, bool own_lock) {
  StoredRun run;
  run.folder = std::filesystem::absolute(folder).lexically_normal().string();
  while (run.folder.size() > 1 && run.folder.back() == '/') run.folder.pop_back();
  run.state = run_state(files, folder, own_lock);
  if (run.state.status == RunStatus::none) {
    throw InvalidArgument("[store] " + folder + " is not a run folder",
                          "use a folder that lockstep train wrote");
  }
  run.facts = read_run_facts(files, folder);
  run.notes = read_run_notes(files, folder);
  add_job(files, folder, run);
  Metrics metrics;
  add_log(files, folder, run, metrics);
  for (const RunScore& score : run.facts.scores) {
    metrics.add(score.name, score.value, run.iteration);
  }
  run.metrics = metrics.all();
  add_receipt(files, folder, run);
  add_artefacts(folder, run);
  return run;
}

std::string to_text(const StoredRun& run) {
  ordered_json options = ordered_json::object(), metrics = ordered_json::object(),
               artefacts = ordered_json::object();
  for (const auto& [name, value] : run.options) options[name] = value;
  for (const MetricSummary& m : run.metrics) {
    metrics[m.name] = {m.last, m.last_iteration, m.best, m.best_iteration};
  }
  for (const Artefact& a : run.artefacts) artefacts[a.name] = a.bytes;
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
                  {"artefacts", artefacts}});
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
    for (const auto& [name, bytes] : j.at("artefacts").items()) {
      run.artefacts.push_back({name, bytes.get<int64_t>()});
    }
  } catch (const JsonError& e) {
    throw DataError(std::string("[store] an entry is damaged: ") + e.what());
  } catch (const ordered_json::exception& e) {
    throw DataError(std::string("[store] an entry is damaged: ") + e.what());
  }
  return run;
}

}  // namespace lockstep
