#include "lockstep/runs/batch/batch_process.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/clusters/slurm.h"
#include "lockstep/runs/batch/batch_files.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds look_pause{100};
constexpr double end_limit = 120;  // seconds for the checkpoint of a cancelled training
constexpr int stopped_exit_code = 130;
constexpr double time_almost_over = 180;  // seconds; SIGTERM comes 120 seconds before the end

bool cancel_requested(const BatchJob& job) {
  return local_files().exists(job.file(batch_cancel_name));
}

// Asks the training to end when the job is cancelled. A thread watches for that.
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

// Returns true when all jobs before this one have ended, and false if the job is to end.
bool wait_for_turn(const BatchJob& job, const BatchWork& work) {
  const auto is_to_end = [&] { return work.stop_wanted() || cancel_requested(job); };
  for (const BatchJob& earlier : batch_jobs()) {
    if (earlier.number >= job.number || has_ended(earlier.state.status)) continue;
    while (file_is_locked(earlier.file(batch_lock_name))) {
      if (is_to_end()) return false;
      std::this_thread::sleep_for(look_pause);
    }
  }
  return !is_to_end();
}

bool is_own_job_of_slurm(const BatchJob& job) {
  return !job.request.cluster.empty() && current_slurm_job() == slurm_job_of(job.folder);
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

int run_batch_job(int64_t number, const BatchWork& work) {
  const BatchJob job = batch_job(number);
  const std::optional<FileLock> lock = FileLock::take(job.file(batch_lock_name));
  if (!lock) {
    throw InvalidArgument("[batch] another process works on job " + std::to_string(number));
  }
  // On a cluster a job may be cancelled before its process starts.
  if (job.request.cluster.empty()) local_files().remove(job.file(batch_cancel_name));
  write_batch_state(job, BatchStatus::queued);
  if (work.ready >= 0) {
    const Descriptor informed(work.ready);
    [[maybe_unused]] const ssize_t written = ::write(informed.get(), "r", 1);
  }
  const bool waits = job.request.cluster.empty() && !job.request.at_once;
  if (waits ? !wait_for_turn(job, work) : cancel_requested(job)) {
    return end_batch_job(job, stopped_exit_code);
  }
  write_batch_state(job, BatchStatus::running);
  try {
    const CancelWatch watch(job, work.request_stop);
    return end_batch_job(job, work.train(job));
  } catch (const std::exception& error) {
    write_batch_state(job, BatchStatus::failed, error.what());
    throw;
  }
}

}  // namespace lockstep
