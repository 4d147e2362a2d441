#include "lockstep/runs/batch/batch_process.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/runs/batch/batch_files.h"
#include "lockstep/runs/batch/executable_copy.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds look_pause{100};
constexpr double end_limit = 120;        // seconds for a cancelled job to end
constexpr double lost_lock_limit = 120;  // seconds
constexpr int stopped_exit_code = 130;
constexpr double time_almost_over = 180;  // seconds; SIGUSR2 comes 120 seconds before the end

bool cancel_requested(const BatchJob& job) {
  return local_files().exists(job.file(batch_cancel_name));
}

// Asks the work to end when the job is cancelled. A thread looks for the request.
class CancelWatch {
 public:
  CancelWatch(const BatchJob& job, const std::function<void()>& request_stop)
      : thread_(quiet_thread([this, &job, &request_stop] { watch(job, request_stop); })) {}
  ~CancelWatch() {
    ended_ = true;
    thread_.join();
  }
  CancelWatch(const CancelWatch&) = delete;
  CancelWatch& operator=(const CancelWatch&) = delete;

 private:
  void watch(const BatchJob& job, const std::function<void()>& request_stop) {
    std::optional<TimeLimit> until;
    for (; !ended_; std::this_thread::sleep_for(look_pause)) {
      if (!until && cancel_requested(job)) {
        request_stop();
        until.emplace(end_limit);
      } else if (until && until->reached()) {
        request_stop();
        until.emplace(end_limit);
      }
    }
  }

  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// Whether jobs of this machine wait for the job in a folder.
bool waits_for(const std::string& folder) {
  // A client may still be submitting it.
  if (!file_is_locked(join_path(folder, batch_lock_name)) &&
      !file_is_locked(join_path(folder, batch_client_lock_name))) {
    return false;
  }
  try {
    if (!local_files().exists(join_path(folder, batch_description_name))) return true;
    return read_batch_description(folder).is_local();
  } catch (const Error&) {  // it is being removed, or it is damaged
    return false;
  }
}

// Refuses to go on with another executable than that of the submission.
void check_executable(const BatchJob& job) {
  const std::string own = own_executable_digest();
  std::string expected = job.digest;
  if (expected.empty()) {
    const std::string path = job.file("executable_digest");
    if (!local_files().exists(path)) write_atomically(local_files(), path, own);
    expected = read_text(local_files(), path);
  }
  if (own == expected) return;
  throw InvalidArgument("[batch] job " + std::to_string(job.number) + ": the executable " +
                            job.executable + " has changed since the job was submitted",
                        "submit the job again, or put the old executable back and resume it");
}

// Returns true when all jobs before this one have ended, and false if the job is to end.
bool wait_for_turn(const BatchJob& job, const BatchWork& work) {
  const auto is_to_end = [&] { return work.stop_wanted() || cancel_requested(job); };
  const std::string all = folder_of(job.folder);
  for (const std::string& name : local_files().list(all)) {
    const int64_t number = batch_number_of(name);
    if (number == 0 || number >= job.number) continue;
    while (waits_for(join_path(all, name))) {
      if (is_to_end()) return false;
      std::this_thread::sleep_for(look_pause);
    }
  }
  return !is_to_end();
}

bool is_own_job_of_slurm(const BatchJob& job) {
  return !job.is_local() && current_slurm_job() == slurm_job_of(job.folder);
}

int end_batch_job(const BatchJob& job, int code) {
  if (code == 0) {
    write_batch_state(job, BatchStatus::finished);
  } else if (code == stopped_exit_code && cancel_requested(job)) {
    write_batch_state(job, BatchStatus::cancelled);
  } else if (code == stopped_exit_code && is_own_job_of_slurm(job)) {
    // Its time ends, others take its nodes, or a user has cancelled it in Slurm. Slurm starts a
    // preempted job again by itself.
    write_batch_state(job, BatchStatus::queued);
    try {
      if (Slurm().time_left(current_slurm_job()) < time_almost_over) {
        Slurm().requeue(current_slurm_job());
      }
    } catch (const Error&) {  // the state tells what became of the job
    }
  } else if (code == stopped_exit_code) {
    write_batch_state(job, BatchStatus::failed, "it was stopped by a signal or by max_time");
  } else {
    write_batch_state(job, BatchStatus::failed, "exit code " + std::to_string(code));
  }
  return code;
}

}  // namespace

int run_batch_job(const std::string& folder, const BatchWork& work) {
  const BatchJob job = read_batch_description(folder);
  std::optional<FileLock> lock = FileLock::take(job.file(batch_lock_name));
  // A network file system may keep the lock of a node that was lost for a while.
  for (const TimeLimit limit(job.is_local() ? 0 : lost_lock_limit); !lock && !limit.reached();) {
    std::this_thread::sleep_for(10 * look_pause);
    lock = FileLock::take(job.file(batch_lock_name));
  }
  if (!lock) {
    throw InvalidArgument("[batch] another process works on job " + std::to_string(job.number));
  }
  try {
    check_executable(job);
  } catch (const InvalidArgument& error) {
    write_batch_state(job, BatchStatus::failed, error.what());
    throw;
  }
  // On a cluster a job may be cancelled before its process starts. Its number in Slurm is not
  // recorded yet if the client was killed after the submission.
  if (job.is_local()) {
    local_files().remove(job.file(batch_cancel_name));
  } else if (!current_slurm_job().empty() && slurm_job_of(job.folder) != current_slurm_job()) {
    write_atomically(local_files(), job.file(batch_slurm_job_name), current_slurm_job());
  }
  write_batch_state(job, BatchStatus::queued);
  if (work.ready >= 0) {
    const Descriptor informed(work.ready);
    [[maybe_unused]] const ssize_t written = ::write(informed.get(), "r", 1);
  }
  const bool waits = job.is_local() && !job.request.at_once;
  if (waits ? !wait_for_turn(job, work) : cancel_requested(job)) {
    return end_batch_job(job, stopped_exit_code);
  }
  write_batch_state(job, BatchStatus::running);
  try {
    const CancelWatch watch(job, work.request_stop);
    return end_batch_job(job, work.work(job));
  } catch (const std::exception& error) {
    write_batch_state(job, BatchStatus::failed, error.what());
    throw;
  }
}

}  // namespace lockstep
