// Batch jobs in C++: a function of the user's program runs in a process of its own that outlives
// the terminal, on this machine or on a cluster. Another process can fetch its result later.
//
//   int main(int argc, char** argv) {
//     lockstep::Runtime runtime(argc, argv);   // the job's process runs the function here
//     auto job = lockstep::batch<&train_all>(27);
//     std::printf("%lld\n", job.id());
//   }
//
//   // In any process of the user. On a cluster: job(3, "lab").
//   lockstep::BatchHandle job(3);
//   if (job.wait(60).status == lockstep::BatchStatus::finished) use(job.result<double>());
//
// `lockstep jobs` shows, waits for, fetches and cancels these jobs as well. A job keeps the
// executable, the arguments and (on this machine) the environment of its submission, without
// variables that look like credentials. All functions are thread-safe, and several processes may
// call them at once. They throw FileError if a file cannot be read or written, and DataError if the
// files of the job are damaged.
#pragma once

#include <cstdint>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/parallel/process/function.h"

namespace lockstep {

enum class BatchStatus {
  queued,     // it waits for the jobs before it, or for the cluster
  running,    // its process works on it
  finished,   // it is complete
  failed,     // an error ended it, or its process or its job in Slurm was killed
  cancelled,  // it was ended by a request
};

// "queued", "running", ...
std::string to_string(BatchStatus status);
// Whether the status is finished, failed or cancelled.
bool has_ended(BatchStatus status);

struct BatchState {
  BatchStatus status = BatchStatus::queued;
  std::string reason = {};  // why it failed, or what it waits for; else ""
  std::string time = {};    // when the state was recorded, UTC: "2026-11-23T20:23:14Z"
};

struct BatchOptions {
  std::string cluster = {};              // name of a profile (`lockstep cluster`); "": this machine
  std::vector<std::string> attach = {};  // files and folders to copy now; see attached_file()
  std::string name = {};                 // that lists of jobs show; "": "function"
  bool at_once = false;                  // on this machine: do not wait for the jobs before it
};

namespace detail {

int64_t submit_batch_call(const FunctionId& function, const Bytes& arguments,
                          const std::string& result_type, const BatchOptions& options);
Bytes batch_result(const std::string& jobs_folder, int64_t id, const std::string& result_type);

}  // namespace detail

// A batch job, by its number. A value type. All functions but id() throw InvalidArgument if there
// is no job of this number (any more).
class BatchHandle {
 public:
  // `cluster`: that of the job's submission; the profile names the folder that has the job. Also
  // throws InvalidArgument if there is no such profile, Unsupported if the profile has a login.
  explicit BatchHandle(int64_t id, const std::string& cluster = {});

  int64_t id() const { return id_; }
  // The present state. If the scheduler of the job's cluster does not answer, the last recorded
  // status with the scheduler's error as its reason.
  BatchState state() const;
  // Waits until the job has ended, at most `seconds` (>= 0). Returns the state at the end of the
  // wait, which need not be an end of the job.
  BatchState wait(double seconds) const;
  // What the function returned. Can be called again. Throws the function's error if it failed,
  // Error if its process ended without one, Cancelled if the job was cancelled, and InvalidArgument
  // if the job has not ended, is not a function, or its function returns another type.
  template <class R>
  R result() const {
    const Bytes bytes = detail::batch_result(jobs_folder_, id_, typeid(R).name());
    if constexpr (!std::is_void_v<R>) return decode<R>(bytes);
  }
  // What its process has printed so far.
  std::string diary() const;
  // Copies what the function has written to batch_output_folder() into the folder `out`. Throws
  // InvalidArgument unless the job has ended and `out` is empty or does not exist. `out` appears
  // whole or not at all.
  void fetch(const std::string& out) const;
  // Asks the function to end (task_cancelled() returns true), and ends its process after two
  // minutes. Does not wait for this. Does nothing for a job that has ended.
  void cancel() const;
  // Calls the function again, with the same output folder. Throws InvalidArgument unless the job
  // has failed or was cancelled, and Error if its process does not start.
  void resume() const;
  // Removes the job with all its files. Throws InvalidArgument unless the job has ended.
  void remove() const;

 private:
  int64_t id_;
  std::string jobs_folder_;
};

// Submits f(arguments...) as a batch job: `f` is a function object without state, such as a lambda
// that captures nothing, or any function as in batch<&function>(arguments...). Returns when the
// job's process has started, or when the cluster has accepted the job; each may take 30 seconds.
// Throws InvalidArgument without a Runtime, for an unknown cluster and for files that cannot be
// attached, Unsupported for a profile with a login, Timeout if the scheduler does not answer, and
// Error if the process does not start or the cluster refuses the job. After an error there is no
// job.
template <class R>
BatchHandle submit_batch(const Call<R>& call, const BatchOptions& options = {}) {
  static_assert(detail::can_be_sent<R>,
                "lockstep: what the function returns cannot be sent: its type needs serialize()");
  return BatchHandle(
      detail::submit_batch_call(call.function(), call.arguments(), typeid(R).name(), options),
      options.cluster);
}
template <class F, class... A>
BatchHandle batch(F f, const A&... arguments) {
  return submit_batch(make_call(f, arguments...));
}
template <auto F, class... A>
BatchHandle batch(const A&... arguments) {
  return submit_batch(make_call<F>(arguments...));
}
template <class F, class... A>
BatchHandle batch_with(const BatchOptions& options, F f, const A&... arguments) {
  return submit_batch(make_call(f, arguments...), options);
}
template <auto F, class... A>
BatchHandle batch_with(const BatchOptions& options, const A&... arguments) {
  return submit_batch(make_call<F>(arguments...), options);
}

// In a function that runs as a batch job: the folder for the files that it writes. The folder is
// empty at first. It keeps its files when the job is resumed or its cluster starts it again. Throws
// InvalidArgument elsewhere.
std::string batch_output_folder();

}  // namespace lockstep
