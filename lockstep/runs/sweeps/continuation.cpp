#include "lockstep/runs/sweeps/continuation.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/sweeps/record.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* record_version = "1";

// Renames the folders of a trial that gets other parameters.
void set_aside(const std::string& sweep, int64_t repeats, int64_t trial) {
  SweepRecord(local_files(), join_path(sweep, sweep_record_name))
      .append({{"event", "changed"}, {"trials", {trial}}, {"time", sweep_time()}});
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    const std::string folder = trial_folder(sweep, trial, repeat);
    if (!local_files().exists(folder)) continue;
    for (int64_t n = 1;; ++n) {
      const std::string aside = folder + ".before-" + std::to_string(n);
      if (local_files().exists(aside)) continue;
      local_files().rename(folder, aside);
      break;
    }
  }
}

}  // namespace

SweepLock::SweepLock(const std::string& folder)
    : lock_(FileLock::take(join_path(folder, run_lock_name))) {
  if (lock_) return;
  throw InvalidArgument("[sweep] another process runs the sweep in " + folder,
                        "wait for it, or choose another folder with --out");
}

std::string trial_folder(const std::string& sweep, int64_t trial, int64_t repeat) {
  std::string name = "trials/" + std::to_string(trial);
  if (repeat > 0) name += "-" + std::to_string(repeat + 1);
  return join_path(sweep, name);
}

void continue_sweep(const SweepContinuation& how, SweepSchedule& schedule, SweepSetup& setup) {
  const std::string path = join_path(how.folder, sweep_record_name);
  setup.changed = [folder = how.folder, repeats = how.options.repeats](int64_t trial) {
    set_aside(folder, repeats, trial);
  };
  const std::vector<ordered_json> lines = read_sweep_record(local_files(), path);
  SweepRecord record(local_files(), path);
  if (lines.empty()) {
    ordered_json first{{"sweep", record_version},
                       {"metric", how.metric},
                       {"goal", how.options.goal},
                       {"budget", how.budget},
                       {"options", sweep_table_json(how.options)},
                       {"time", sweep_time()}};
    record.append(first);
    return;
  }
  std::map<TrialRun, TrialResult> results;
  std::set<int64_t> stopped;
  const auto forget = [&](int64_t trial) {
    std::erase_if(results, [&](const auto& entry) { return entry.first.trial == trial; });
    stopped.erase(trial);
  };
  size_t number = 0;
  try {
    for (const ordered_json& line : lines) {
      ++number;
      const std::string event = line.value("event", std::string());
      if (line.contains("decision")) {
        setup.recorded[line["decision"].get<int64_t>()] = decision_from(line);
      } else if (line.contains("result")) {
        TrialResult result = result_from(line);
        results[result.run] = std::move(result);
      } else if (event == "stop") {
        stopped.insert(line.at("trial").get<int64_t>());
      } else if (event == "rerun" || event == "changed") {
        setup.decides_anew = true;
        for (const int64_t trial : line.at("trials").get<std::vector<int64_t>>()) forget(trial);
      } else if (event == "extended") {
        setup.decides_anew = true;
      }
    }
  } catch (const json::exception&) {
    throw DataError("[sweep] " + path + ", line " + std::to_string(number) + ": it is damaged");
  }
  const auto note = [&](ordered_json line) {
    line["time"] = sweep_time();
    record.append(line);
  };
  if (how.rerun_failed) {
    std::set<int64_t> failed;
    for (const auto& [run, result] : results) {
      if (result.state == TrialState::diverged || result.state == TrialState::unbuildable) {
        failed.insert(run.trial);
      }
    }
    note({{"event", "rerun"}, {"trials", failed}});
    for (const int64_t trial : failed) forget(trial);
    setup.decides_anew = true;
  }
  if (how.extended) {
    note({{"event", "extended"},
          {"budget", how.budget},
          {"options", sweep_table_json(how.options)}});
    setup.decides_anew = true;
  } else {
    note({{"event", "resumed"}});
  }
  for (auto& [run, result] : results) schedule.add(std::move(result));
  setup.stopped.assign(stopped.begin(), stopped.end());
}

}  // namespace lockstep
