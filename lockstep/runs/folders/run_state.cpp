#include "lockstep/runs/folders/run_state.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/utc_time.h"
#include "lockstep/runs/folders/run_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* format = "1";

const std::map<RunStatus, std::string>& names() {
  static const std::map<RunStatus, std::string> all{
      {RunStatus::none, "none"},        {RunStatus::running, "running"},
      {RunStatus::stopped, "stopped"},  {RunStatus::interrupted, "interrupted"},
      {RunStatus::pruned, "pruned"},    {RunStatus::failed, "failed"},
      {RunStatus::finished, "finished"}};
  return all;
}

// Whether a process works in the folder.
bool run_is_locked(const std::string& folder) {
  return file_is_locked(join_path(folder, run_lock_name));
}

// The content of state.json; nothing if it is missing, damaged or of a later version.
std::optional<RunState> noted(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, run_state_name);
  if (!files.exists(path) || files.is_folder(path)) return std::nullopt;
  try {
    const json read = parse_json<json>(read_text(files, path));
    if (read.at("lockstep.state") != format) return std::nullopt;
    for (const auto& [status, name] : names()) {
      if (name != read.at("state")) continue;
      return RunState{status, read.at("reason").get<std::string>(),
                      read.at("time").get<std::string>(), read.at("iteration").get<int64_t>()};
    }
  } catch (const json::exception&) {
  } catch (const DataError&) {  // also what is not JSON
  }
  return std::nullopt;
}

}  // namespace

std::string to_string(RunStatus status) { return names().at(status); }

std::string describe(const RunState& state) {
  const std::string after =
      state.iteration > 0 ? " after iteration " + std::to_string(state.iteration) : "";
  const std::string why = state.reason.empty() ? "" : ": " + state.reason;
  switch (state.status) {
    case RunStatus::none:
      return "contains no run";
    case RunStatus::running:
      return "is being trained";
    case RunStatus::interrupted:
      return "was interrupted before it finished";
    case RunStatus::stopped:
      return "was stopped" + after + why;
    case RunStatus::pruned:
      return "was pruned" + after + why;
    case RunStatus::failed:
      return "failed" + after + why;
    case RunStatus::finished:
      return "is finished";
  }
  return "";
}

RunState run_state(FileSystem& files, const std::string& folder, bool own_lock) {
  const auto holds = [&](const char* name) { return files.exists(join_path(folder, name)); };
  bool any = false;
  for (const char* name : run_file_names) any = any || holds(name);
  if (!any || is_batch_folder(files, folder)) return {};
  RunState state =
      noted(files, folder)
          .value_or(RunState{holds(run_model_name) ? RunStatus::finished : RunStatus::interrupted});
  if (!own_lock && run_is_locked(folder)) {
    if (state.status != RunStatus::running) state = {RunStatus::running};
    return state;
  }
  // The run may have ended after the state was read.
  if (!own_lock && state.status == RunStatus::running) {
    state = noted(files, folder).value_or(state);
  }
  if (state.status == RunStatus::running) state.status = RunStatus::interrupted;
  return state;
}

void write_run_state(FileSystem& files, const std::string& folder, const RunState& state) {
  const nlohmann::ordered_json written{{"lockstep.state", format},
                                       {"state", to_string(state.status)},
                                       {"reason", state.reason},
                                       {"iteration", state.iteration},
                                       {"time", state.time.empty() ? utc_now() : state.time}};
  write_atomically(
      files, join_path(folder, run_state_name),
      written.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string model_path(FileSystem& files, const std::string& path) {
  if (!files.is_folder(path)) return path;
  std::string file = join_path(path, run_model_name);
  if (files.exists(file)) return file;
  const RunState state = run_state(files, path);
  if (state.status == RunStatus::none) {
    throw DataError("[model] the folder " + path + " contains no " + run_model_name,
                    "use a model file, or the folder of a run");
  }
  throw DataError("[model] " + path + " " + describe(state) + ", and has no model yet",
                  state.status == RunStatus::running
                      ? "a run has a model when it has finished or was stopped"
                      : "continue it: lockstep train JOB --out " + path + " --resume");
}

std::string model_note(FileSystem& files, const std::string& path) {
  if (!files.is_folder(path)) return "";
  const RunState state = run_state(files, path);
  switch (state.status) {
    case RunStatus::none:
    case RunStatus::finished:
      return "";
    case RunStatus::stopped:
    case RunStatus::pruned:
    case RunStatus::failed:
      return path + " " + describe(state) + "; this is its network at that time";
    case RunStatus::running:
    case RunStatus::interrupted:
      return path + " " + describe(state) + "; this is the network of an earlier stop";
  }
  return "";
}

}  // namespace lockstep
