#include "apps/lockstep/continuation.h"

#include <fmt/format.h>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/train/options/options.h"

namespace lockstep::command {
namespace {

// "10.0.0.2:4,10.0.0.3:4"
std::string hosts_of(const TrainArguments& a) {
  std::string text;
  for (const std::string& host : a.hosts) text += (text.empty() ? "" : ",") + host;
  return text;
}

// "max_time=5", "training.max_time = 5"
bool sets_max_time(const std::string& setting) {
  const std::string blanks = " \t";
  const size_t begin = setting.find_first_not_of(blanks);
  if (begin == std::string::npos) return false;
  std::string key = setting.substr(begin, setting.find('=', begin) - begin);
  key.erase(key.find_last_not_of(blanks) + 1);
  return key == "max_time" || key == "training.max_time";
}

// The job, settings and workers of the arguments, each after a space.
std::string given(const TrainArguments& a, bool out_of_time) {
  std::string line = a.job.empty() ? "" : " " + shell_word(a.job);
  for (const std::string& setting : a.settings) {
    if (!out_of_time || !sets_max_time(setting)) line += " --set " + shell_word(setting);
  }
  if (!a.device.empty()) line += " --device " + shell_word(a.device);
  if (a.threads > 0) line += " --threads " + std::to_string(a.threads);
  if (a.workers > 0) line += " --workers " + std::to_string(a.workers);
  if (!a.worker_load.empty()) line += " --worker-load " + loads_of(a);
  if (!a.hosts.empty()) line += " --hosts " + hosts_of(a);
  if (!a.host_launch.empty()) line += " --host-launch " + shell_word(a.host_launch);
  if (!a.initial_model.empty()) line += " --initial-model " + shell_word(a.initial_model);
  return line;
}

}  // namespace

std::string loads_of(const TrainArguments& a) {
  std::string text;
  for (const double load : a.worker_load)
    text += fmt::format("{}{}", text.empty() ? "" : ",", load);
  return text;
}

std::string job_of_run(const std::string& folder, const std::string& out) {
  FileSystem& files = local_files();
  if (is_batch_folder(files, folder)) {
    throw InvalidArgument("[train] " + out + " is the folder of a batch job, not of a run",
                          "`lockstep jobs resume NUMBER` continues the job");
  }
  std::string path = join_path(folder, "job.json");
  if (run_state(files, folder).status == RunStatus::none || !files.exists(path)) {
    throw InvalidArgument("[train] " + out + " contains no run that could be continued",
                          "to start one there: lockstep train JOB --out " + shell_word(out));
  }
  return path;
}

std::string how_to_go_on(const TrainArguments& a, const std::string& folder, bool out_of_time) {
  std::string line = "lockstep train";
  // The folder's job.json has what a run began with and its newest end, but not what else a
  // continued one was given.
  if (a.resume) line += given(a, out_of_time);
  if (out_of_time) line += " --set training.max_time=0";
  // The nodes of a cluster are others each time.
  if (!a.cluster.empty()) line += " --cluster " + shell_word(a.cluster);
  if (a.tensorboard) line += " --tensorboard";
  if (a.histograms) line += " --histograms";
  return line + " --out " + shell_word(folder) + " --resume";
}

}  // namespace lockstep::command
