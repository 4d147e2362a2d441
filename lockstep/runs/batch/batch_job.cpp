#include "lockstep/runs/batch/batch_job.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/base/utc_time.h"
#include "lockstep/parallel/clusters/slurm.h"
#include "lockstep/parallel/clusters/tool.h"
#include "lockstep/parallel/process/spawn_guard.h"
#include "lockstep/runs/batch/batch_files.h"
#include "lockstep/runs/folders/run_facts.h"

namespace lockstep {
namespace {

constexpr double start_limit = 30;  // seconds
constexpr std::chrono::milliseconds wait_pause{100};

std::string variable_or_nothing(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::string number_text(int64_t number) { return std::to_string(number); }

// The number that a folder's name is, or 0.
int64_t number_of(const std::string& name) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && number > 0 && number_text(number) == name ? number : 0;
}

// The highest number that was ever given, so that the number of a removed job is not given again.
constexpr const char* last_number_name = "last";

int64_t last_number(const std::string& all) {
  int64_t last = 0;
  for (const std::string& name : local_files().list(all)) last = std::max(last, number_of(name));
  const std::string path = join_path(all, last_number_name);
  return local_files().exists(path) ? std::max(last, number_of(read_text(local_files(), path)))
                                    : last;
}

// Makes the folder of the next job.
int64_t make_batch_folder(const std::string& all) {
  make_folders(local_files(), all);
  ::chmod(all.c_str(), 0700);  // diaries and jobs are the user's own
  for (;;) {
    const int64_t next = last_number(all) + 1;
    const std::string folder = join_path(all, number_text(next));
    if (::mkdir(folder.c_str(), 0700) == 0) return next;
    if (errno != EEXIST) {
      throw FileError("[batch] cannot make the folder " + folder + ": " +
                      std::system_category().message(errno));
    }
  }
}

// What spawned processes need; frees itself.
struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
};

// Starts `jobs run NUMBER --ready-descriptor 3` of this executable in a new session, with
// default signal handlers. Its output goes to the diary.
pid_t spawn_batch_process(const BatchJob& job, int ready) {
  SpawnSettings with;
  const std::string diary = job.file(batch_diary_name);
  posix_spawn_file_actions_adddup2(&with.actions, ready, 3);
  posix_spawn_file_actions_addopen(&with.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&with.actions, 1, diary.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&with.actions, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&with.actions, 4);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&with.attributes, &none);
  posix_spawnattr_setsigdefault(&with.attributes, &all);
  posix_spawnattr_setflags(&with.attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> words{"lockstep",           "jobs", "run", number_text(job.number),
                                 "--ready-descriptor", "3"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const SpawnGuard guard;
  const int error = posix_spawn(&pid, "/proc/self/exe", &with.actions, &with.attributes,
                                arguments.data(), environ);
  if (error != 0) {
    throw Error("[batch] the process of the job cannot be started: " +
                std::system_category().message(error));
  }
  return pid;
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
    throw Error("[batch] no pipe: " + std::system_category().message(errno));
  }
  const Descriptor ours(ends[0]);
  Descriptor theirs(ends[1]);
  const pid_t pid = spawn_batch_process(job, theirs.get());
  theirs.close();
  if (becomes_ready(ours.get())) return;
  ::kill(pid, SIGKILL);
  std::string said;
  try {
    said = read_text(local_files(), job.file(batch_diary_name));
  } catch (const FileError&) {  // it has printed nothing
  }
  throw Error("[batch] the process of the job did not start" + (said.empty() ? "" : ": " + said));
}

// The path of this executable.
std::string executable_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw FileError("[batch] /proc/self/exe: " + error.message());
  return path.string();
}

void give_to_slurm(const BatchJob& job) {
  SlurmScript script;
  // Slurm carries standard input unencrypted, so keys of hosts go through files of this folder,
  // which only this user can read.
  if (job.folder.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789/._+-=@%,:") == std::string::npos) {
    script.environment.emplace_back("LOCKSTEP_KEY_FOLDER", job.folder);
  }
  script.name = "lockstep-" + number_text(job.number);
  script.output = job.file(batch_diary_name);
  script.command = shell_quoted(executable_path()) + " jobs run " + number_text(job.number);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("LOCKSTEP_") || equals == std::string::npos) continue;
    script.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  const std::string text = slurm_script(job.profile, script);
  write_atomically(local_files(), job.file(batch_script_name), text);
  write_atomically(local_files(), job.file(batch_slurm_job_name), Slurm().submit(text));
}

void start_batch_job(const BatchJob& job) {
  if (job.request.cluster.empty()) {
    start_batch_process(job);
  } else {
    give_to_slurm(job);
  }
}

std::string folder_of_job(int64_t number) {
  return join_path(batch_jobs_folder(), number_text(number));
}

void refuse_unended(const BatchJob& job) {
  if (has_ended(job.state.status)) return;
  throw InvalidArgument(
      "[batch] job " + number_text(job.number) + " is " + to_string(job.state.status),
      "wait for it: lockstep jobs wait " + number_text(job.number) +
          ", or cancel it: lockstep jobs cancel " + number_text(job.number));
}

}  // namespace

std::string BatchJob::file(const std::string& name_inside) const {
  return join_path(folder, name_inside);
}

std::string batch_jobs_folder() { return user_folder(UserFolder::state, "jobs"); }

int64_t submit_batch_job(const Job& job, const BatchRequest& request) {
  ClusterProfile profile;
  if (!request.cluster.empty()) profile = read_cluster_profile(request.cluster);
  BatchJob made;
  const std::string all = batch_jobs_folder();
  made.number = make_batch_folder(all);
  made.folder = join_path(all, number_text(made.number));
  made.name = job.name;
  made.submitted = utc_now();
  made.host = host_name();
  made.request = request;
  if (!request.cluster.empty()) made.profile = profile;
  try {
    write_atomically(local_files(), made.file(batch_training_name), job.resolved().dump(2) + "\n");
    write_batch_state(made, BatchStatus::queued);
    write_batch_description(made);  // last: it makes the folder a job
    local_files().sync_folder(all);
    start_batch_job(made);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(made.folder, ignored);
    throw;
  }
  return made.number;
}

void resume_batch_job(int64_t number) {
  const BatchJob job = batch_job(number);
  refuse_unended(job);
  if (job.state.status == BatchStatus::finished) {
    throw InvalidArgument("[batch] job " + number_text(number) + " is finished");
  }
  local_files().remove(job.file(batch_cancel_name));
  write_batch_state(job, BatchStatus::queued);
  try {
    start_batch_job(job);
  } catch (const Error& error) {
    write_batch_state(job, BatchStatus::failed, error.what());
    throw;
  }
}

BatchJob batch_job(int64_t number) {
  const std::string folder = folder_of_job(number);
  if (!local_files().exists(join_path(folder, batch_description_name))) {
    throw InvalidArgument(
        "[batch] there is no job " + number_text(number) + " in " + batch_jobs_folder(),
        "lockstep jobs list shows all jobs");
  }
  return read_batch_job(folder, number);
}

std::vector<BatchJob> batch_jobs() {
  const std::string all = batch_jobs_folder();
  std::vector<BatchJob> jobs;
  if (!local_files().is_folder(all)) return jobs;
  for (const std::string& name : local_files().list(all)) {
    if (number_of(name) == 0) continue;
    try {
      jobs.push_back(read_batch_job(join_path(all, name), number_of(name)));
    } catch (const DataError&) {  // it is being made or removed, or it is damaged
    }
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const BatchJob& a, const BatchJob& b) { return a.number < b.number; });
  return jobs;
}

void cancel_batch_job(int64_t number) {
  const BatchJob job = batch_job(number);
  if (has_ended(job.state.status)) return;
  write_atomically(local_files(), job.file(batch_cancel_name), "");
  // A process that lives sees the file.
  if (job.request.cluster.empty() || file_is_locked(job.file(batch_lock_name))) return;
  if (const std::string slurm_job = slurm_job_of(job.folder); !slurm_job.empty()) {
    Slurm().cancel(slurm_job);
  }
}

BatchState wait_for_batch_job(int64_t number, double seconds) {
  const TimeLimit limit(seconds);
  const BatchJob job = batch_job(number);
  const std::string& folder = job.folder;
  // Slurm's controller is not asked more often than once a second.
  const auto pause = job.request.cluster.empty() ? wait_pause : 10 * wait_pause;
  for (;;) {
    const BatchState state = batch_state(folder);
    // The process has recorded its last state and holds the lock for a moment longer.
    const bool lives = file_is_locked(join_path(folder, batch_lock_name));
    if ((has_ended(state.status) && !lives) || limit.reached()) return state;
    std::this_thread::sleep_for(pause);
  }
}

void fetch_batch_job(int64_t number, const std::string& out) {
  const BatchJob job = batch_job(number);
  refuse_unended(job);
  if (!local_files().is_folder(job.run_folder())) {
    throw InvalidArgument(
        "[batch] job " + number_text(number) + " has no run: it ended before it began to train",
        "lockstep jobs diary " + number_text(number) + " shows its diary");
  }
  std::error_code error;
  if (std::filesystem::exists(out, error) &&
      !(std::filesystem::is_directory(out, error) && std::filesystem::is_empty(out, error))) {
    throw InvalidArgument("[batch] " + out + " exists and is not an empty folder");
  }
  make_folders(local_files(), folder_of(out));
  std::filesystem::copy(job.run_folder(), out, std::filesystem::copy_options::recursive, error);
  if (error) {
    throw FileError("[batch] cannot copy " + job.run_folder() + " to " + out + ": " +
                    error.message());
  }
}

void remove_batch_job(int64_t number) {
  const BatchJob job = batch_job(number);
  refuse_unended(job);
  std::error_code error;
  write_atomically(local_files(), join_path(batch_jobs_folder(), last_number_name),
                   number_text(last_number(batch_jobs_folder())));
  // Without its description the folder is no job, if the rest cannot be removed.
  local_files().remove(job.file(batch_description_name));
  std::filesystem::remove_all(job.folder, error);
  if (error) {
    throw FileError("[batch] cannot remove " + job.folder + ": " + error.message());
  }
}

std::string logout_note() {
  if (variable_or_nothing("XDG_SESSION_ID").empty()) return "";
  std::vector<std::string> places{"/etc/systemd/logind.conf"};
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/etc/systemd/logind.conf.d", error)) {
    places.push_back(entry.path().string());
  }
  bool ends = false;
  for (const std::string& place : places) {
    try {
      ends = ends || ("\n" + read_text(local_files(), place)).find("\nKillUserProcesses=yes") !=
                         std::string::npos;
    } catch (const FileError&) {  // no such file
    }
  }
  const std::string user = variable_or_nothing("USER");
  if (!ends || std::filesystem::exists("/var/lib/systemd/linger/" + user, error)) return "";
  return "this system ends the processes of a user who logs out, batch jobs included; "
         "`loginctl enable-linger` changes that";
}

}  // namespace lockstep
