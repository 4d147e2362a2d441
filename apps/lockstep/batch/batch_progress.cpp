// What a batch job has reached.
#include "apps/lockstep/batch/batch_progress.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/text.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/runs/folders/growing_lines.h"
#include "lockstep/runs/sweeps/record.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;

using Rows = std::vector<std::pair<std::string, std::string>>;

// The newest iteration and validation in a run's log, and how long the run will be.
struct BatchProgress {
  ordered_json iteration, validation;
  int64_t last_epoch = 0;
};

BatchProgress progress_of(const BatchJob& job) {
  BatchProgress progress;
  const auto description =
      parse_json_or_discard<ordered_json>(read_text(local_files(), job.file("job.json")));
  const ordered_json::json_pointer epochs("/training/max_epochs");
  if (description.contains(epochs) && description[epochs].is_number_integer()) {
    progress.last_epoch = description[epochs].get<int64_t>();
  }
  const std::string log = join_path(job.run_folder(), "log.jsonl");
  if (!local_files().exists(log)) return progress;
  // Only the last of each kind is parsed: logs have many lines.
  std::string iteration, validation;
  GrowingLines().follow(log, [&](std::string_view line) {
    if (line.find("\"validation_loss\"") != std::string_view::npos) {
      validation = line;
    } else if (line.find("\"seconds\"") != std::string_view::npos &&
               line.find("\"loss\"") != std::string_view::npos) {
      iteration = line;
    }
  });
  const auto object_of = [](const std::string& text) {
    auto json = parse_json_or_discard<ordered_json>(text);
    return json.is_object() ? json : ordered_json();
  };
  progress.iteration = object_of(iteration);
  progress.validation = object_of(validation);
  return progress;
}

std::string number_text(const ordered_json& line, const char* key, bool share = false) {
  if (!line.is_object() || !line.contains(key) || !line[key].is_number()) return "-";
  const double value = line[key].get<double>();
  if (share) return percent(value);
  return line[key].is_number_integer() ? format_count(line[key].get<int64_t>())
                                       : fmt::format("{:.4g}", value);
}

ordered_json json_of_training(const BatchJob& job) {
  const BatchProgress progress = progress_of(job);
  return {{"max_epochs", progress.last_epoch},
          {"iteration", progress.iteration},
          {"validation", progress.validation}};
}

Rows rows_of_training(const ordered_json& progress) {
  Rows rows;
  const ordered_json &iteration = progress["iteration"], &validation = progress["validation"];
  if (iteration.is_object()) {
    rows.emplace_back("epoch", fmt::format("{} of {}", number_text(iteration, "epoch"),
                                           progress["max_epochs"].get<int64_t>()));
    rows.emplace_back("iteration", number_text(iteration, "iteration"));
    rows.emplace_back("loss", number_text(iteration, "loss"));
  }
  if (validation.is_object()) {
    rows.emplace_back("validation loss", number_text(validation, "validation_loss"));
    rows.emplace_back("validation accuracy", number_text(validation, "validation_accuracy", true));
  }
  return rows;
}

// What the record of a sweep says about its trials.
ordered_json json_of_sweep(const BatchJob& job) {
  const std::string record = join_path(job.run_folder(), sweep_record_name);
  ordered_json sweep{{"metric", ordered_json()}, {"budget", 0}, {"trials", ordered_json::array()}};
  if (!local_files().exists(record)) return sweep;
  std::map<int64_t, ordered_json> trials;
  for (const ordered_json& line : read_sweep_record(local_files(), record)) {
    if (line.contains("sweep")) {
      sweep["metric"] = line.value("metric", "");
      sweep["budget"] = line.value("budget", int64_t{0});
    } else if (line.contains("decision")) {
      for (const ordered_json& start : line.value("starts", ordered_json::array())) {
        const auto trial = start.value("trial", int64_t{0});
        trials[trial] = {{"trial", trial},
                         {"state", "open"},
                         {"epochs", 0},
                         {"value", nullptr},
                         {"parameters", start.value("parameters", ordered_json::object())}};
      }
      for (const ordered_json& trial : line.value("pruned", ordered_json::array())) {
        if (trial.is_number_integer()) trials[trial.get<int64_t>()]["state"] = "pruned";
      }
    } else if (line.value("event", "") == "extended") {
      sweep["budget"] = line.value("budget", int64_t{0});
    } else if (line.contains("result") && line["result"].is_object()) {
      const ordered_json& result = line["result"];
      ordered_json& trial = trials[result.value("trial", int64_t{0})];
      const std::string state = result.value("state", "reached");
      if (state != "reached") trial["state"] = state == "ended" ? "finished" : state;
      trial["epochs"] = result.value("epoch", int64_t{0});
      trial["value"] = result.contains("value") ? result["value"] : ordered_json();
      if (state == "reached" && trial["epochs"] == sweep["budget"]) trial["state"] = "finished";
    }
  }
  for (auto& [unused, trial] : trials) sweep["trials"].push_back(std::move(trial));
  return sweep;
}

Rows rows_of_sweep(const ordered_json& sweep) {
  Rows rows;
  if (!sweep["metric"].is_string()) return rows;
  std::map<std::string, int64_t> counts;
  for (const ordered_json& trial : sweep["trials"]) ++counts[trial.value("state", "open")];
  std::string text;
  for (const auto& [state, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state);
  }
  rows.emplace_back("trials", text);
  const std::string metric = sweep["metric"].get<std::string>();
  for (const ordered_json& trial : sweep["trials"]) {
    const bool known = trial.contains("value") && trial["value"].is_number();
    std::string what = fmt::format(
        "{:<8}  {} of {} epochs  {}", trial.value("state", "open"),
        trial.value("epochs", int64_t{0}), sweep["budget"].get<int64_t>(),
        known ? metric + " " + number_text(trial, "value", metric == "validation.accuracy") : "");
    if (trial.contains("parameters")) {
      for (const auto& [name, value] : trial["parameters"].items()) {
        what += "  " + printable(name) + " " +
                printable(value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    rows.emplace_back(fmt::format("trial {}", trial.value("trial", int64_t{0})), what);
  }
  return rows;
}

struct Shown {
  ordered_json json;
  Rows rows;
};

Shown progress_now(const BatchJob& job) {
  Shown shown{{{"number", job.number}, {"state", to_string(job.state.status)}},
              {{"state", to_string(job.state.status)}}};
  ordered_json more = ordered_json::object();
  Rows rows;
  if (job.request.kind == BatchKind::training) {
    more = json_of_training(job);
    rows = rows_of_training(more);
  } else if (job.request.kind == BatchKind::sweep) {
    more = json_of_sweep(job);
    rows = rows_of_sweep(more);
  }
  shown.json.update(more);
  shown.rows.insert(shown.rows.end(), rows.begin(), rows.end());
  return shown;
}

// The first rows as one line.
std::string line_of(const Rows& rows) {
  std::string line;
  for (const auto& [name, value] : rows) {
    if (name.starts_with("trial ")) break;
    line += (line.empty() ? "" : ", ") + (name == "state" ? value : name + " " + value);
  }
  return line + "\n";
}

}  // namespace

int show_batch_progress(const std::string& jobs_folder, int64_t number,
                        const BatchProgressOptions& options) {
  std::string before;
  for (;; std::this_thread::sleep_for(std::chrono::seconds(1))) {
    const BatchJob job = batch_job(jobs_folder, number);
    const Shown shown = progress_now(job);
    if (!options.follow) {
      if (options.json) {
        print_json(shown.json);
      } else {
        print_table(shown.rows);
      }
      return 0;
    }
    const std::string line = options.json ? shown.json.dump() + "\n" : line_of(shown.rows);
    if (line != before) print(line);
    before = line;
    if (has_ended(job.state.status)) return 0;
  }
}

}  // namespace lockstep::command
