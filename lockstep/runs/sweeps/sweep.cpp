#include "lockstep/runs/sweeps/sweep.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/runs/sweeps/continuation.h"
#include "lockstep/runs/sweeps/driver.h"
#include "lockstep/runs/sweeps/record.h"
#include "lockstep/runs/sweeps/trial_table.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Whether the options of a record's first line, or of its last extension, were others. Throws
// InvalidArgument if the sweep cannot become the other one.
bool is_extended(const SweepSettings& s, const std::string& path) {
  ordered_json before;
  int64_t budget = 0;
  for (const ordered_json& line : read_sweep_record(local_files(), path)) {
    if (!line.contains("options")) continue;
    before = line["options"];
    budget = line.value("budget", int64_t{0});
  }
  if (before.is_null()) return false;
  ordered_json now = sweep_table_json(s.options);
  const bool larger = now["trials"] != before["trials"] || now["repeats"] != before["repeats"] ||
                      s.budget != budget;
  const bool smaller = now["trials"].get<int64_t>() < before["trials"].get<int64_t>() ||
                       now["repeats"].get<int64_t>() < before["repeats"].get<int64_t>() ||
                       s.budget < budget;
  for (const char* field : {"trials", "repeats"}) now.erase(field), before.erase(field);
  if (smaller || now != before) {
    throw InvalidArgument("[sweep] " + s.folder + " contains a sweep with other options",
                          "more trials, repeats and budget alone can be added");
  }
  return larger;
}

const std::string& value_of(const SweepTrial& trial, const std::string& name) {
  for (const auto& [key, value] : trial.parameters) {
    if (key == name) return value;
  }
  throw InvalidArgument("[sweep] trial " + std::to_string(trial.index) + " has no parameter `" +
                        name + "`");
}

}  // namespace

bool SweepTrial::uses(const std::string& name) const {
  for (const auto& [key, unused] : parameters) {
    if (key == name) return true;
  }
  return false;
}

double SweepTrial::number(const std::string& name) const {
  const json value = parse_json<json>(value_of(*this, name));
  if (value.is_number()) return value.get<double>();
  throw InvalidArgument("[sweep] the parameter `" + name + "` is not a number: " + value.dump());
}

std::string SweepTrial::text(const std::string& name) const {
  const json value = parse_json<json>(value_of(*this, name));
  if (value.is_string()) return value.get<std::string>();
  throw InvalidArgument("[sweep] the parameter `" + name + "` is not text: " + value.dump());
}

Sweep::Sweep(SweepSettings settings) : settings_(std::move(settings)) {
  if (settings_.folder.empty()) throw InvalidArgument("[sweep] the sweep's folder has no name");
  if (settings_.options.goal.empty()) {
    throw InvalidArgument("[sweep] the goal is missing", "\"minimize\" or \"maximize\"");
  }
  if (settings_.options.metric.empty()) settings_.options.metric = "value";
  settings_.options.check();
  if (!settings_.method) {
    settings_.method = make_sweep_method(settings_.options, settings_.budget);
  }
}

TrialReport Sweep::report(const std::function<double()>& run) {
  TrialReport report;
  const auto failed = [&](TrialState state, const std::string& reason) {
    report.state = static_cast<int32_t>(state);
    report.reason = reason;
    report.value = std::nan("");
    return report;
  };
  try {
    report.value = run();
  } catch (const InvalidArgument& error) {
    return failed(TrialState::unbuildable, error.what());
  } catch (const Unsupported& error) {
    return failed(TrialState::unbuildable, error.what());
  } catch (const Diverged& error) {
    return failed(TrialState::diverged, error.what());
  }
  if (std::isfinite(report.value)) return report;
  return failed(TrialState::diverged, "the result is not a finite number");
}

SweepOutcome Sweep::run_calls(Pool& pool, const Submit& submit) {
  const SweepSettings& s = settings_;
  FileSystem& files = local_files();
  make_folders(files, s.folder);
  const SweepLock lock(s.folder);
  const std::string path = join_path(s.folder, sweep_record_name);
  const bool there = files.exists(path);
  if (there && !s.resume) {
    throw InvalidArgument("[sweep] " + s.folder + " contains a sweep",
                          "set resume, or choose another folder");
  }
  SweepSchedule schedule(s.method, s.options.repeats, s.options.goal == "minimize");
  SweepSetup setup;
  continue_sweep({.folder = s.folder,
                  .metric = s.options.metric,
                  .options = s.options,
                  .budget = s.budget,
                  .extended = there && is_extended(s, path)},
                 schedule, setup);
  setup.folder = s.folder;
  setup.complete = s.budget;
  setup.interrupted = s.interrupted;
  setup.submit = [&](const TrialTask& task, const QueueSender<TrialProgress>&,
                     const QueueReceiver<int64_t>&) {
    SweepTrial trial{.index = task.trial,
                     .repeat = task.repeat,
                     .seed = s.options.seed + task.repeat,
                     .budget = task.budget,
                     .folder = trial_folder(s.folder, task.trial, task.repeat),
                     .parameters = task.parameters};
    make_folders(files, trial.folder);
    return submit(trial);
  };
  SweepOutcome outcome;
  outcome.finished = run_schedule(schedule, pool, setup) == SweepEnd::finished;
  write_atomically(files, join_path(s.folder, "trials.csv"),
                   trials_csv(schedule, s.options, s.options.metric));
  for (const TrialRow& row : trial_rows(schedule, s.options)) {
    const auto summary = schedule.summary(row.trial);
    outcome.trials.push_back({.index = row.trial,
                              .parameters = schedule.parameters(row.trial),
                              .state = row.state,
                              .reason = row.reason,
                              .budget = summary && !summary->failed() ? summary->budget : 0,
                              .value = row.value,
                              .spread = row.spread});
    if (row.rank == 1 && summary && !summary->failed()) outcome.best = row.trial;
  }
  return outcome;
}

}  // namespace lockstep
