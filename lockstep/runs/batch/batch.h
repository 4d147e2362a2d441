// Batch jobs in C++: a function of the user's program runs in a process of its own that outlives
// the terminal, on this machine or on a cluster. Another process fetches its result later.
//
//   int main(int argc, char** argv) {
//     lockstep::Runtime runtime(argc, argv);   // the job's process runs the function in here
//     auto job = lockstep::batch<&train_all>(27);
//     std::printf("%lld\n", job.id());
//   }
//
//   lockstep::BatchHandle job(3);              // in any process, later; (3, "lab") on a cluster
//   if (job.wait(60).status == lockstep::BatchStatus::finished) use(job.result<double>());
//
// `lockstep jobs` shows, waits for, fetches and cancels these jobs as well. A job keeps the
// executable, the arguments and (on this machine) the environment of its submission. Functions are
// thread-safe, and may be called by several processes at once. They throw FileError if a file
// cannot be read or written.
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
  running,    // it is being worked on
  finished,   // it is complete
  failed,     // an error ended it, or its process was killed
  cancelled,  // it was ended by a request
};

// "queued", "running", ...
std::string to_string(BatchStatus status);
bool has_ended(BatchStatus status);

struct BatchState {
  BatchStatus status = BatchStatus::queued;
  std::string reason = {};  // why it failed, or what it waits for; else ""
  std::string time = {};    // when the state was recorded, "2026-11-23T20:23:14Z"
};

struct BatchOptions {
  std::string cluster = {};              // name of a profile (`lockstep cluster`); "": this machine
  std::vector<std::string> attach = {};  // files and folders: copied now, see attached_file()
  std::string name = {};                 // for lists of jobs; "": "function"
  bool at_once = false;                  // on this machine: do not wait for the jobs before it
};

namespace detail {

int64_t submit_batch_call(const FunctionId& function, const Bytes& arguments,
                          const std::string& result_type, const BatchOptions& options);
Bytes batch_result(const std::string& jobs_folder, int64_t id, const std::string& result_type);

}  // namespace detail

// A batch job, by its number. A value.
class BatchHandle {
 public:
  // The cluster is that of its submission: jobs lie in the folder that its profile names. Throws
  // InvalidArgument if there is no job of this number or no such profile, Unsupported if the
  // profile has a login.
  explicit BatchHandle(int64_t id, const std::string& cluster = {});

  int64_t id() const { return id_; }
  BatchState state() const;
  // Waits until the job has ended, at most `seconds`. Returns its state then, whether it has ended
  // or not.
  BatchState wait(double seconds) const;
  // What the function returned; as often as wanted. Throws the function's error if it failed,
  // Cancelled if it was cancelled, and InvalidArgument if the job has not ended or its function
  // returns another type.
  template <class R>
  R result() const {
    const Bytes bytes = detail::batch_result(jobs_folder_, id_, typeid(R).name());
    if constexpr (!std::is_void_v<R>) return decode<R>(bytes);
  }
  // What its process has printed so far.
  std::string diary() const;
  // Copies what the function has written to batch_output_folder() into the folder `out`, which must
  // not exist or be empty. The job must have ended.
  void fetch(const std::string& out) const;
  // Asks the job to end (task_cancelled()), and ends it after two minutes. Returns at once. Does
  // nothing for a job that has ended.
  void cancel() const;
  // Calls the function again, after a failure or a cancellation, with the same output folder.
  void resume() const;
  // Removes a job that has ended with everything that it holds.
  void remove() const;

 private:
  int64_t id_;
  std::string jobs_folder_;
};

// Submits f(arguments...) as a batch job: `f` is a lambda that captures nothing, or any function as
// in batch<&function>(arguments...). Returns when the job is queued. Throws InvalidArgument without
// a Runtime, for an unknown cluster and for files that cannot be attached, and Error if the process
// does not start or the cluster refuses the job; there is no job then.
template <class R>
BatchHandle submit_batch(const Call<R>& call, const BatchOptions& options = {}) {
  static_assert(detail::can_be_sent<R>,
                "what the function returns cannot be sent: its type needs serialize()");
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

// In a function that runs as a batch job: a folder for what it writes. It is empty at first, and
// kept when the job is resumed or its cluster starts it again. Throws InvalidArgument elsewhere.
std::string batch_output_folder();

}  // namespace lockstep
