#include "lockstep/runs/batch/batch_start.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/cluster/slurm/tool.h"
#include "lockstep/parallel/process/spawn.h"
#include "lockstep/runs/batch/batch_files.h"

namespace lockstep {
namespace {

constexpr double start_limit = 30;  // seconds

using EnvironmentVariables = std::map<std::string, std::string>;

EnvironmentVariables own_environment() {
  EnvironmentVariables variables;
  for (auto& [name, value] : variables_with("")) variables[name] = std::move(value);
  return variables;
}

void add_profile_environment(const BatchJob& job, EnvironmentVariables& variables) {
  if (!job.profile.ports.empty()) variables["LOCKSTEP_PORTS"] = job.profile.ports;
  for (auto& [name, value] : job.profile.variables()) variables[name] = std::move(value);
}

// The environment of a job's process on this machine, as "NAME=VALUE".
std::vector<std::string> environment_of(const BatchJob& job) {
  EnvironmentVariables variables;
  const std::string path = job.file(batch_environment_name);
  if (local_files().exists(path)) {
    const auto recorded = parse_json_or_discard<nlohmann::json>(read_text(local_files(), path));
    if (!recorded.is_object()) throw DataError("[batch] " + path + " is damaged");
    for (const auto& [name, value] : recorded.items()) {
      if (value.is_string()) variables[name] = value.get<std::string>();
    }
    for (const auto& [name, value] : own_environment()) {
      if (may_hold_secret(name, value)) variables[name] = value;
    }
  } else {
    variables = own_environment();
  }
  add_profile_environment(job, variables);
  std::vector<std::string> words;
  for (const auto& [name, value] : variables) words.push_back(name + "=" + value);
  return words;
}

// The arguments with which the executable works on a job.
std::vector<std::string> arguments_of(const BatchJob& job) {
  if (job.request.kind == BatchKind::function) return {batch_argument, job.folder};
  return {"jobs", "run", job.folder};
}

std::string executable_of(const BatchJob& job) {
  return job.executable.empty() ? "/proc/self/exe" : job.executable;
}

// Starts the job's executable in a new session. Its output goes to the diary. It gets `ready` as
// descriptor 3.
pid_t spawn_batch_process(const BatchJob& job, int ready) {
  const std::string path = job.file(batch_diary_name);
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor diary(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!nothing || !diary) {
    throw FileError("[batch] cannot open " + (nothing ? path : "/dev/null") + ": " +
                    std::system_category().message(errno));
  }
  SpawnRequest request{.program = executable_of(job),
                       .words = arguments_of(job),
                       .environment = environment_of(job),
                       .descriptors = {nothing.get(), diary.get(), diary.get(), ready},
                       .new_session = true,
                       .ends_with_caller = false};
  request.words.insert(request.words.begin(), "lockstep");
  request.words.insert(request.words.end(), {"--ready-descriptor", "3"});
  if (local_files().is_folder(job.directory)) request.folder = job.directory;
  const Spawned spawned = spawn(request);
  if (spawned.error != 0) {
    throw Error("[batch] the process of the job cannot be started: " + request.program + ": " +
                std::system_category().message(spawned.error));
  }
  return spawned.process;
}

// Waits for the byte that says that the process holds the job's lock.
bool becomes_ready(int descriptor) {
  const TimeLimit limit(start_limit);
  while (!limit.reached()) {
    pollfd waiting{descriptor, POLLIN, 0};
    const int result = ::poll(&waiting, 1, limit.milliseconds_left());
    if (result < 0 && errno == EINTR) continue;
    char byte;
    return result > 0 && ::read(descriptor, &byte, 1) == 1;
  }
  return false;
}

void start_batch_process(const BatchJob& job) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error("[batch] cannot create a pipe: " + std::system_category().message(errno));
  }
  const Descriptor ours(ends[0]);
  Descriptor theirs(ends[1]);
  std::error_code none;
  const uintmax_t size = std::filesystem::file_size(job.file(batch_diary_name), none);
  const size_t said_before = none ? 0 : static_cast<size_t>(size);
  const pid_t pid = spawn_batch_process(job, theirs.get());
  theirs.close();
  if (becomes_ready(ours.get())) {
    // The caller may live long: its ended children must not stay.
    quiet_thread([pid] { ::waitpid(pid, nullptr, 0); }).detach();
    return;
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  std::string said;
  try {
    said = read_text(local_files(), job.file(batch_diary_name));
    said.erase(0, std::min(said.size(), said_before));
  } catch (const FileError&) {  // it has printed nothing
  }
  while (said.ends_with('\n')) said.pop_back();
  throw Error("[batch] the process of the job did not start" + (said.empty() ? "" : ": " + said));
}

// A name that no other job has.
std::string name_in_slurm(const BatchJob& job) {
  Digester digester;
  const std::string all = job.folder + job.submitted + job.host;
  digester.bytes(all.data(), all.size());
  return "lockstep-" + std::to_string(job.number) + "-" +
         digester.finish().to_string().substr(0, 8);
}

// The job's process may be doing the same.
void record_slurm_job(const BatchJob& job, const std::string& number) {
  try {
    write_atomically(local_files(), job.file(batch_slurm_job_name), number);
  } catch (const FileError&) {
    if (slurm_job_of(job.folder) != number) throw;
  }
}

SlurmScript script_of(const BatchJob& job) {
  SlurmScript script;
  EnvironmentVariables variables;
  // Slurm carries standard input unencrypted, so keys of hosts go through files of this folder,
  // which only this user can read.
  variables["LOCKSTEP_KEY_FOLDER"] = job.folder;
  for (auto& [name, value] : variables_with("LOCKSTEP_")) variables[name] = std::move(value);
  add_profile_environment(job, variables);
  script.environment.assign(variables.begin(), variables.end());
  script.name = name_in_slurm(job);
  script.output = job.file(batch_diary_name);
  script.command = shell_quoted(job.executable);
  for (const std::string& word : arguments_of(job)) script.command += " " + shell_quoted(word);
  return script;
}

void give_to_slurm(const BatchJob& job) {
  const SlurmScript script = script_of(job);
  // A job that is resumed keeps its environment.
  const std::string path = job.file(batch_script_name);
  if (!local_files().exists(path)) {
    write_atomically(local_files(), path, slurm_script(job.profile, script));
  }
  // Of an earlier submission.
  if (!slurm_job_of(job.folder).empty()) local_files().remove(job.file(batch_slurm_job_name));
  local_files().remove(job.file(batch_releases_name));
  const Slurm slurm(job.profile.login);
  try {
    const std::string number = slurm.submit(read_text(local_files(), path));
    // The job may have begun and recorded its number itself.
    if (slurm_job_of(job.folder) != number) record_slurm_job(job, number);
  } catch (...) {
    // Slurm may have the job all the same.
    try {
      slurm.cancel_all(script.name);
    } catch (const Error&) {  // it does not answer
    }
    throw;
  }
}

}  // namespace

std::string batch_script_for(const BatchRequest& request) {
  BatchJob job;
  job.request = request;
  job.profile = read_cluster_profile(request.cluster);
  job.folder = join_path(batch_jobs_folder_of(job.profile), "NUMBER");
  const std::string& named = job.profile.executable;
  job.executable =
      named == "shared" || named == "shipped" ? job.file(batch_executable_name) : named;
  SlurmScript script = script_of(job);
  script.name = "lockstep-NUMBER-WORD";
  return slurm_script(job.profile, script);
}

void record_batch_environment(const BatchJob& job) {
  auto recorded = nlohmann::ordered_json::object();
  for (const auto& [name, value] : own_environment()) {
    if (!may_hold_secret(name, value)) recorded[name] = value;
  }
  write_atomically(
      local_files(), job.file(batch_environment_name),
      recorded.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void start_batch_job(const BatchJob& job) {
  if (job.is_local()) {
    start_batch_process(job);
  } else {
    give_to_slurm(job);
  }
}

}  // namespace lockstep
