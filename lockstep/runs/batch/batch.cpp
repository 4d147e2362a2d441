#include "lockstep/runs/batch/batch.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/cluster/runtime.h"
#include "lockstep/cluster/start_mode.h"
#include "lockstep/parallel/pool/task_context.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/runs/batch/batch_files.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/runs/batch/batch_process.h"
#include "lockstep/runs/batch/batch_start.h"

namespace lockstep {
namespace {

constexpr int stopped_code = 130;

struct BatchCall {
  FunctionId function;
  Bytes arguments;
  std::string result_type;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(function, arguments, result_type);
  }
};

BatchCall read_call(const BatchJob& job) {
  if (job.request.kind != BatchKind::function) {
    throw InvalidArgument("[batch] job " + std::to_string(job.number) + " is a " +
                          to_string(job.request.kind) + ", not a function");
  }
  return decode<BatchCall>(local_files().read(job.file(batch_call_name)));
}

std::atomic<bool> batch_stop = false;

// What the function knows of itself as a task.
class BatchContext final : public TaskContext {
 public:
  explicit BatchContext(const BatchJob& job) : job_(job) {}

  bool cancelled() const override { return batch_stop; }
  void send(uint64_t, std::span<const std::byte>) override { refuse_queue(); }
  std::optional<Bytes> receive(uint64_t, const TimeLimit&) override { refuse_queue(); }
  std::string file(const std::string& name) const override {
    const std::string path = join_path(job_.file(batch_attached_name), name);
    const bool plain = !name.empty() && name.find('/') == std::string::npos && name != "..";
    return plain && local_files().exists(path) ? path : "";
  }
  const SharedMemory& memory() const override { refuse_queue(); }
  std::string output_folder() const { return job_.run_folder(); }

 private:
  [[noreturn]] static void refuse_queue() {
    throw InvalidArgument("[batch] a batch job has no client to exchange messages with",
                          "write files to batch_output_folder(), or open a pool in the function");
  }
  const BatchJob& job_;
};

// SIGINT, SIGTERM and SIGUSR2 (which Slurm sends before the end of a job's time) ask the function
// to stop. A thread receives the signals, because compute threads must not run handlers.
void watch_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR2}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  quiet_thread([signals] {
    for (int number = 0; sigwait(&signals, &number) == 0;) batch_stop = true;
  }).detach();
}

int call_function(const BatchJob& job) {
  make_folders(local_files(), job.run_folder());
  local_files().remove(job.file(batch_error_name));
  BatchContext context(job);
  const TaskContext::Scope scope(context, true);
  try {
    const BatchCall call = read_call(job);
    const Bytes result = detail::find_packed(call.function)(call.arguments);
    write_atomically(local_files(), job.file(batch_result_name), result);
    return 0;
  } catch (const Cancelled&) {
    if (batch_stop) return stopped_code;
    write_atomically(local_files(), job.file(batch_error_name), encode(TaskError::current()));
    throw;
  } catch (const std::exception&) {
    write_atomically(local_files(), job.file(batch_error_name), encode(TaskError::current()));
    throw;
  }
}

// The process of a job: `--lockstep-batch FOLDER [--ready-descriptor N]`.
void run_as_batch_process(int argc, char** argv) {
  int code = 1;
  try {
    if (argc < 3) throw InvalidArgument("[batch] the folder of the job is missing");
    watch_stop_signals();
    const bool informs = argc >= 5 && std::strcmp(argv[3], "--ready-descriptor") == 0;
    code = run_batch_job(argv[2], {.work = call_function,
                                   .stop_wanted = [] { return batch_stop.load(); },
                                   .request_stop =
                                       [] {
                                         if (batch_stop.exchange(true)) ::_exit(stopped_code);
                                       },
                                   .ready = informs ? std::atoi(argv[4]) : -1});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  std::exit(code);
}

[[maybe_unused]] const bool batch_mode_added = add_start_mode(batch_argument, run_as_batch_process);

std::string id_text(int64_t id) { return std::to_string(id); }

}  // namespace

namespace detail {

int64_t submit_batch_call(const FunctionId& function, const Bytes& arguments,
                          const std::string& result_type, const BatchOptions& options) {
  if (!Runtime::present()) {
    throw InvalidArgument("[batch] a batch job runs this program again, which needs a Runtime",
                          "begin main() with: lockstep::Runtime runtime(argc, argv);");
  }
  const Bytes call = encode(BatchCall{function, arguments, result_type});
  return submit_batch_job({reinterpret_cast<const char*>(call.data()), call.size()},
                          {.kind = BatchKind::function,
                           .name = options.name.empty() ? "function" : options.name,
                           .at_once = options.at_once,
                           .cluster = options.cluster,
                           .attach = options.attach});
}

Bytes batch_result(const std::string& jobs_folder, int64_t id, const std::string& result_type) {
  const BatchJob job = batch_job(jobs_folder, id);
  const BatchCall call = read_call(job);
  if (call.result_type != result_type) {
    throw InvalidArgument("[batch] the function of job " + id_text(id) +
                          " returns another type: " + call.result_type + ", not " + result_type);
  }
  switch (job.state.status) {
    case BatchStatus::finished:
      return local_files().read(job.file(batch_result_name));
    case BatchStatus::cancelled:
      throw Cancelled("[batch] job " + id_text(id) + " was cancelled");
    case BatchStatus::failed:
      if (local_files().exists(job.file(batch_error_name))) {
        decode<TaskError>(local_files().read(job.file(batch_error_name)))
            .rethrow("job " + id_text(id) + ": ");
      }
      throw Error("[batch] job " + id_text(id) + " failed: " + job.state.reason);
    default:
      throw InvalidArgument("[batch] job " + id_text(id) + " is " + to_string(job.state.status),
                            "wait for it first");
  }
}

}  // namespace detail

BatchHandle::BatchHandle(int64_t id, const std::string& cluster)
    : id_(id), jobs_folder_(batch_jobs_folder(cluster)) {
  batch_job(jobs_folder_, id);
}

BatchState BatchHandle::state() const { return batch_job(jobs_folder_, id_).state; }

BatchState BatchHandle::wait(double seconds) const {
  return wait_for_batch_job(jobs_folder_, id_, seconds);
}

std::string BatchHandle::diary() const {
  const std::string path = batch_job(jobs_folder_, id_).file(batch_diary_name);
  return local_files().exists(path) ? read_text(local_files(), path) : "";
}

void BatchHandle::fetch(const std::string& out) const { fetch_batch_job(jobs_folder_, id_, out); }

void BatchHandle::cancel() const { cancel_batch_job(jobs_folder_, id_); }

void BatchHandle::resume() const { resume_batch_job(jobs_folder_, id_); }

void BatchHandle::remove() const { remove_batch_job(jobs_folder_, id_); }

std::string batch_output_folder() {
  const auto* context = dynamic_cast<const BatchContext*>(TaskContext::current());
  if (context == nullptr) {
    throw InvalidArgument("[batch] batch_output_folder() is for functions of batch jobs");
  }
  return context->output_folder();
}

}  // namespace lockstep
