#include "lockstep/parallel/pool/task_context.h"

#include <atomic>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

thread_local TaskContext* of_thread = nullptr;
std::atomic<TaskContext*> of_process{nullptr};

}  // namespace

TaskContext* TaskContext::current() { return of_thread ? of_thread : of_process.load(); }

TaskContext::Scope::Scope(TaskContext& context, bool whole) : of_process_(whole) {
  if (whole) {
    of_process = &context;
  } else {
    of_thread = &context;
  }
}

TaskContext::Scope::~Scope() {
  if (of_process_) {
    of_process = nullptr;
  } else {
    of_thread = nullptr;
  }
}

bool task_cancelled() {
  const TaskContext* const context = TaskContext::current();
  return context != nullptr && context->cancelled();
}

void check_cancelled() {
  if (task_cancelled()) throw Cancelled("[pool] the task was cancelled");
}

int task_worker() {
  const TaskContext* const context = TaskContext::current();
  return context ? context->worker : -1;
}

int pool_workers() {
  const TaskContext* const context = TaskContext::current();
  return context ? context->workers : 0;
}

std::string attached_file(const std::string& name) {
  const TaskContext* const context = TaskContext::current();
  std::string path = context ? context->file(name) : "";
  if (path.empty()) throw InvalidArgument("[pool] no file `" + name + "` is attached to the pool");
  return path;
}

TaskRandom task_random() {
  const TaskContext* const context = TaskContext::current();
  return context ? TaskRandom(context->seed, context->task) : TaskRandom();
}

}  // namespace lockstep
