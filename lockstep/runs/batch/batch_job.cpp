#include "lockstep/runs/batch/batch_job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/os/host_name.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/base/utc_time.h"
#include "lockstep/cluster/login/fetched_folder.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/runs/batch/attachments.h"
#include "lockstep/runs/batch/batch_files.h"
#include "lockstep/runs/batch/batch_start.h"
#include "lockstep/runs/batch/executable_copy.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds wait_pause{100};
constexpr int lockless_seconds = 60;  // that making a folder and locking it never takes

std::string number_text(int64_t number) { return std::to_string(number); }

// The highest number that was ever given, so that the number of a removed job is not given again.
constexpr const char* last_number_name = "last";

int64_t last_number(const std::string& all) {
  int64_t last = 0;
  for (const std::string& name : local_files().list(all))
    last = std::max(last, batch_number_of(name));
  const std::string path = join_path(all, last_number_name);
  return local_files().exists(path)
             ? std::max(last, batch_number_of(read_text(local_files(), path)))
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

std::string folder_of_job(const std::string& all, int64_t number) {
  return join_path(all, number_text(number));
}

void refuse_unended(const BatchJob& job) {
  if (has_ended(job.state.status)) return;
  throw InvalidArgument(
      "[batch] job " + number_text(job.number) + " is " + to_string(job.state.status),
      "wait for it: lockstep jobs wait " + number_text(job.number) +
          ", or cancel it: lockstep jobs cancel " + number_text(job.number));
}

// Whether the process that made or removed a job's folder was killed at it. That process holds the
// lock, but for a moment after it has made the folder.
bool is_abandoned(const std::string& folder) {
  const std::string lock = join_path(folder, batch_client_lock_name);
  const std::string description = join_path(folder, batch_description_name);
  struct stat status;
  if (::stat(folder.c_str(), &status) != 0) return false;
  if (!local_files().exists(lock)) return std::time(nullptr) - status.st_mtime > lockless_seconds;
  if (file_is_locked(lock)) return false;
  return local_files().is_folder(folder) && !local_files().exists(description);
}

std::string said_of(const Error& error) {
  return error.what() + (error.hint().empty() ? "" : "; " + error.hint());
}

DataError abandoned_error(int64_t number) {
  return DataError("[batch] job " + number_text(number) +
                       " is incomplete: the process that submitted or removed it was killed",
                   "lockstep jobs rm " + number_text(number) + " removes what is left of it");
}

[[noreturn]] void refuse_unknown(const std::string& all, int64_t number) {
  if (is_abandoned(folder_of_job(all, number))) throw abandoned_error(number);
  throw InvalidArgument("[batch] there is no job " + number_text(number) + " in " + all,
                        "lockstep jobs list shows all jobs; --cluster NAME those of a cluster");
}

FileLock lock_existing_job(const std::string& all, int64_t number) {
  const std::string folder = folder_of_job(all, number);
  if (!local_files().is_folder(folder)) refuse_unknown(all, number);
  return lock_batch_job(folder);
}

// The job, for a caller that holds its client lock.
BatchJob locked_batch_job(const std::string& all, int64_t number) {
  const std::string folder = folder_of_job(all, number);
  if (!local_files().exists(join_path(folder, batch_description_name))) refuse_unknown(all, number);
  SlurmQueue queue;
  return read_batch_job(folder, queue, true);
}

// Of a damaged job its locks tell whether it has ended.
void refuse_unremovable(const std::string& all, int64_t number) {
  const std::string folder = folder_of_job(all, number);
  try {
    if (local_files().exists(join_path(folder, batch_description_name))) {
      refuse_unended(locked_batch_job(all, number));
      return;
    }
  } catch (const DataError&) {
  }
  if (file_is_locked(join_path(folder, batch_lock_name))) {
    throw InvalidArgument(
        "[batch] job " + number_text(number) + " is damaged, and its process works on it",
        "lockstep jobs rm removes it when that process has ended");
  }
}

// What runs the job: this executable as it is now, or a path that its profile names.
void keep_executable_of(BatchJob& job, const std::string& jobs_folder) {
  const std::string& named = job.profile.executable;
  if (!job.is_local() && named != "shared" && named != "shipped") {
    job.executable = named;
    return;
  }
  const KeptExecutable kept = keep_executable(jobs_folder, job.folder);
  job.executable = kept.path;
  job.digest = kept.digest;
}

}  // namespace

std::string BatchJob::file(const std::string& name_inside) const {
  return join_path(folder, name_inside);
}

std::string batch_jobs_folder_of(const ClusterProfile& profile) {
  return profile.folder_for("jobs");
}

std::string batch_jobs_folder(const std::string& cluster) {
  const ClusterProfile profile = cluster.empty() ? ClusterProfile() : read_cluster_profile(cluster);
  if (!profile.login.empty()) {
    throw Unsupported("[batch] the jobs of the profile " + cluster + " are on " + profile.login +
                          ": a program cannot reach them from here",
                      "run the program on that login node, with a profile without `login`; "
                      "`lockstep submit` and `lockstep jobs` work from here");
  }
  return batch_jobs_folder_of(profile);
}

int64_t submit_batch_job(std::string_view content, const BatchRequest& request) {
  BatchJob made;
  if (!request.cluster.empty()) made.profile = read_cluster_profile(request.cluster);
  const std::string all = batch_jobs_folder(request.cluster);
  made.number = make_batch_folder(all);
  made.folder = join_path(all, number_text(made.number));
  const FileLock client = lock_batch_job(made.folder);
  made.name = request.name;
  made.submitted = utc_now();
  made.host = host_name();
  std::error_code none;
  made.directory = std::filesystem::current_path(none).string();
  made.request = request;
  try {
    std::vector<std::string> files = request.attach;
    files.insert(files.end(), made.profile.attach.begin(), made.profile.attach.end());
    const Attachments attached(files, made.file(batch_attached_name));
    made.request.initial_model = attached.attached_path(request.initial_model);
    if (request.kind == BatchKind::function) {
      write_atomically(local_files(), made.file(batch_call_name), content);
    } else {
      write_atomically(local_files(), made.file(batch_training_name),
                       attached.job_with_attached_paths(std::string(content)));
    }
    keep_executable_of(made, all);
    if (made.is_local()) record_batch_environment(made);
    write_batch_state(made, BatchStatus::queued);
    write_batch_description(made);  // last: it makes the folder a job
    local_files().sync_folder(all);
    start_batch_job(made);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(made.folder, ignored);
    remove_unused_executables(all);
    throw;
  }
  return made.number;
}

void resume_batch_job(const std::string& all, int64_t number) {
  const FileLock client = lock_existing_job(all, number);
  const BatchJob job = locked_batch_job(all, number);
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

BatchJob batch_job(const std::string& all, int64_t number) {
  const std::string folder = folder_of_job(all, number);
  if (!local_files().exists(join_path(folder, batch_description_name))) refuse_unknown(all, number);
  SlurmQueue queue;
  return read_batch_job(folder, queue);
}

BatchJobList batch_jobs(const std::string& all) {
  BatchJobList list;
  if (!local_files().exists(all)) return list;
  std::vector<int64_t> numbers;
  for (const std::string& name : local_files().list(all)) {
    if (batch_number_of(name) > 0) numbers.push_back(batch_number_of(name));
  }
  std::sort(numbers.begin(), numbers.end());
  SlurmQueue queue;
  for (const int64_t number : numbers) {
    const std::string folder = join_path(all, number_text(number));
    if (!local_files().exists(join_path(folder, batch_description_name))) {
      // Another process may be making or removing it.
      if (is_abandoned(folder)) list.damaged.emplace_back(number, said_of(abandoned_error(number)));
      continue;
    }
    try {
      list.jobs.push_back(read_batch_job(folder, queue));
    } catch (const DataError& error) {
      if (local_files().exists(join_path(folder, batch_description_name))) {
        list.damaged.emplace_back(number, said_of(error));
      }
    }
  }
  return list;
}

void cancel_batch_job(const std::string& all, int64_t number) {
  const FileLock client = lock_existing_job(all, number);
  const BatchJob job = locked_batch_job(all, number);
  if (has_ended(job.state.status)) return;
  write_atomically(local_files(), job.file(batch_cancel_name), "");
  // A process that lives sees the file.
  if (job.is_local() || file_is_locked(job.file(batch_lock_name))) return;
  if (const std::string slurm_job = slurm_job_of(job.folder); !slurm_job.empty()) {
    Slurm(job.profile.login).cancel({slurm_job});
  }
}

BatchState wait_for_batch_job(const std::string& all, int64_t number, double seconds) {
  const TimeLimit limit(seconds);
  const BatchJob job = batch_job(all, number);
  // Slurm's controller is not asked more often than once a second.
  const auto pause = job.is_local() ? wait_pause : 10 * wait_pause;
  for (;;) {
    SlurmQueue queue;
    const BatchState state = batch_state(job, queue);
    // The process has recorded its last state and holds the lock for a moment longer.
    const bool lives = file_is_locked(job.file(batch_lock_name));
    if ((has_ended(state.status) && !lives) || limit.reached()) return state;
    std::this_thread::sleep_for(pause);
  }
}

bool fetch_batch_job(const std::string& all, int64_t number, const std::string& out) {
  const FileLock client =
      lock_existing_job(all, number);  // so that no other process resumes or removes it
  const BatchJob job = locked_batch_job(all, number);
  refuse_unended(job);
  if (!local_files().is_folder(job.run_folder())) {
    const std::string what = job.request.kind == BatchKind::training
                                 ? "has no run: it ended before it began to train"
                                 : "has no files: it ended before it began";
    throw InvalidArgument("[batch] job " + number_text(number) + " " + what,
                          "lockstep jobs diary " + number_text(number) + " shows its diary");
  }
  FetchedFolder fetched(out);
  std::error_code error;
  std::filesystem::copy(job.run_folder(), join_path(fetched.path(), "run"),
                        std::filesystem::copy_options::recursive, error);
  if (error) {
    throw FileError("[batch] cannot copy " + job.run_folder() + " to " + out + ": " +
                    error.message());
  }
  fetched.finish("run");
  return fetched.removed_unfinished();
}

void remove_batch_job(const std::string& all, int64_t number) {
  const std::string folder = folder_of_job(all, number);
  const FileLock client = lock_existing_job(all, number);
  refuse_unremovable(all, number);
  const std::string last = number_text(last_number(all)), path = join_path(all, last_number_name);
  if (!local_files().exists(path) || read_text(local_files(), path) != last) {
    write_atomically(local_files(), path, last);
  }
  // Without its description the folder is not a job, if the rest cannot be removed.
  local_files().remove(join_path(folder, batch_description_name));
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) {
    throw FileError("[batch] cannot remove " + folder + ": " + error.message());
  }
  remove_unused_executables(all);
}

std::string logout_note() {
  if (variable("XDG_SESSION_ID").empty()) return "";
  std::vector<std::string> files{"/etc/systemd/logind.conf"};
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/etc/systemd/logind.conf.d", error)) {
    files.push_back(entry.path().string());
  }
  bool ends = false;
  for (const std::string& file : files) {
    try {
      ends = ends || ("\n" + read_text(local_files(), file)).find("\nKillUserProcesses=yes") !=
                         std::string::npos;
    } catch (const FileError&) {  // no such file
    }
  }
  const std::string user = variable("USER");
  if (!ends || std::filesystem::exists("/var/lib/systemd/linger/" + user, error)) return "";
  return "this system ends the processes of a user who logs out, batch jobs included; "
         "`loginctl enable-linger` changes that";
}

}  // namespace lockstep
