#include "lockstep/report/pages/sweep_page.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/report/pages/run_log.h"
#include "lockstep/report/pages/run_page.h"
#include "lockstep/runs/folders/growing_lines.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr const char* kRecord = "sweep.jsonl";
constexpr size_t kMostCurvePoints = 400;

// What the record says of a trial.
struct RecordedTrial {
  ordered_json parameters = ordered_json::object();
  bool pruned = false, begun = false;
  double goal = 0;  // the largest budget that decisions have set
  struct Result {
    double budget = 0, value = std::numeric_limits<double>::quiet_NaN();
    std::string state, reason;
  };
  std::map<int64_t, Result> results;  // by repeat: the one at the largest budget
};

struct RecordedSweep {
  ordered_json first = ordered_json::object();
  std::map<int64_t, RecordedTrial> trials;

  void line(const ordered_json& json);
  void result(const ordered_json& json);
};

int64_t integer_at(const ordered_json& json, const char* key, int64_t otherwise) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

std::string text_at(const ordered_json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

void RecordedSweep::result(const ordered_json& json) {
  const int64_t number = integer_at(json, "trial", -1);
  if (number < 0) return;
  RecordedTrial::Result result{.state = text_at(json, "state"), .reason = text_at(json, "reason")};
  if (json.contains("budget") && json["budget"].is_number()) result.budget = json["budget"];
  if (json.contains("value") && json["value"].is_number()) result.value = json["value"];
  RecordedTrial::Result& kept = trials[number].results[integer_at(json, "repeat", 0)];
  if (result.budget >= kept.budget) kept = result;
}

void RecordedSweep::line(const ordered_json& json) {
  if (json.contains("sweep")) {
    first = json;
  } else if (json.contains("result") && json["result"].is_object()) {
    result(json["result"]);
  } else if (json.contains("decision")) {
    for (const ordered_json& start : json.value("starts", ordered_json::array())) {
      if (!start.is_object() || integer_at(start, "trial", -1) < 0) continue;
      RecordedTrial& trial = trials[integer_at(start, "trial", -1)];
      trial.parameters = start.value("parameters", ordered_json::object());
    }
    for (const ordered_json& goal : json.value("goals", ordered_json::array())) {
      if (!goal.is_object() || integer_at(goal, "trial", -1) < 0) continue;
      double& known = trials[integer_at(goal, "trial", -1)].goal;
      known = std::max(known, static_cast<double>(integer_at(goal, "budget", 0)));
    }
    for (const ordered_json& pruned : json.value("pruned", ordered_json::array())) {
      if (pruned.is_number_integer()) trials[pruned.get<int64_t>()].pruned = true;
    }
  } else if (text_at(json, "event") == "begun") {
    if (const int64_t number = integer_at(json, "trial", -1); number >= 0)
      trials[number].begun = true;
  } else if (text_at(json, "event") == "extended" && json.contains("budget")) {
    first["budget"] = json["budget"];
  } else if (const std::string event = text_at(json, "event");
             event == "rerun" || event == "changed") {
    for (const ordered_json& again : json.value("trials", ordered_json::array())) {
      if (!again.is_number_integer()) continue;
      trials[again.get<int64_t>()].results.clear();
      trials[again.get<int64_t>()].pruned = false;
    }
  }
}

RecordedSweep record_of(const std::string& folder) {
  RecordedSweep record;
  GrowingLines().follow(join_path(folder, kRecord), [&](std::string_view line) {
    const ordered_json json = parse_json_or_discard<ordered_json>(line);
    if (json.is_object()) record.line(json);
  });
  return record;
}

// The metric at each validation of a run, over epochs.
ordered_json curve_of(const std::string& run, const std::string& metric) {
  RunLog log;
  log.follow(join_path(run, "log.jsonl"), std::numeric_limits<int64_t>::max());
  const ordered_json columns = log.columns(2);
  std::string key = metric;
  if (const size_t dot = key.find('.'); dot != std::string::npos) key[dot] = '_';
  const std::string name = metric.substr(metric.find('.') + 1);
  ordered_json x = ordered_json::array(), y = ordered_json::array();
  const ordered_json& validations = columns["validations"];
  const size_t step = validations.size() / kMostCurvePoints + 1;
  for (size_t i = 0; i < validations.size(); ++i) {
    if (i % step != 0 && i + 1 != validations.size()) continue;
    const ordered_json& v = validations[i];
    ordered_json value = v.value(key, ordered_json());
    if (value.is_null() && v.contains("validation_metrics") &&
        v["validation_metrics"].is_object()) {
      value = v["validation_metrics"].value(name, ordered_json());
    }
    if (!value.is_number()) continue;
    x.push_back(v.value("epoch", ordered_json(0)));
    y.push_back(std::move(value));
  }
  return {{"x", std::move(x)}, {"y", std::move(y)}};
}

ordered_json object_of(const std::string& path) {
  if (!local_files().exists(path)) return nullptr;
  ordered_json json = parse_json_or_discard<ordered_json>(read_text(local_files(), path));
  return json.is_object() ? json : ordered_json();
}

ordered_json trial_data(const std::string& folder, int64_t number, const RecordedTrial& trial,
                        const std::string& metric) {
  double sum = 0, budget = 0;
  int64_t values = 0;
  std::string state = trial.begun ? "running" : "waiting", reason;
  bool final = false;
  for (const auto& [repeat, result] : trial.results) {
    if (std::isfinite(result.value)) sum += result.value, ++values;
    budget = std::max(budget, result.budget);
    state = result.state;
    reason = result.reason;
    final = final || state != "reached";
  }
  if (trial.pruned && state == "reached") state = "pruned";
  const bool open = !final && !trial.pruned && budget < trial.goal;
  const std::string run = join_path(folder, "trials/" + std::to_string(number));
  return {{"trial", number},
          {"parameters", trial.parameters},
          {"value", values > 0 ? ordered_json(sum / static_cast<double>(values)) : ordered_json()},
          {"budget", budget},
          {"state", printable(state)},
          {"reason", printable(reason)},
          {"final", final},
          {"pruned", trial.pruned},
          {"open", open},
          {"folder", printable(run)},
          {"curve", curve_of(run, metric)}};
}

}  // namespace

bool holds_sweep(const std::string& folder) {
  return local_files().exists(join_path(folder, kRecord));
}

ordered_json sweep_data(const std::string& folder) {
  if (!holds_sweep(folder)) {
    throw InvalidArgument("[report] " + folder + " is not the folder of a sweep");
  }
  const RecordedSweep record = record_of(folder);
  std::string metric = text_at(record.first, "metric");
  if (metric.empty()) metric = "validation.loss";
  ordered_json trials = ordered_json::array();
  for (const auto& [number, trial] : record.trials) {
    trials.push_back(trial_data(folder, number, trial, metric));
  }
  ordered_json data{{"name", std::filesystem::path(folder).filename().string()},
                    {"folder", printable(folder)},
                    {"metric", metric},
                    {"goal", text_at(record.first, "goal")},
                    {"budget", record.first.value("budget", ordered_json(0))},
                    {"trials", std::move(trials)},
                    {"best", nullptr},
                    {"notes", ordered_json::array()}};
  data["result"] = object_of(join_path(folder, "result.json"));
  if (data["result"].is_object()) data["best"] = data["result"].value("best", ordered_json());
  const ordered_json confusion = object_of(join_path(folder, "confusion.json"));
  if (confusion.is_object()) data["confusion"] = confusion;
  return data;
}

std::string write_sweep_report(const std::string& folder) {
  ordered_json data = sweep_data(folder);
  for (const ordered_json& trial : data["trials"]) {
    const std::string run =
        join_path(folder, "trials/" + std::to_string(trial["trial"].get<int64_t>()));
    try {
      write_report(run);
    } catch (const Error& e) {
      if (!local_files().exists(run)) continue;  // it has not begun
      data["notes"].push_back(e.what());
    }
  }
  std::string path = join_path(folder, report_name);
  write_atomically(local_files(), path, report_page(std::move(data)));
  return path;
}

}  // namespace lockstep
