// Tasks of a pool: how they are submitted, their states, and what a running task knows of itself.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/numeric/random.h"

namespace lockstep {

enum class TaskState { queued, running, finished, failed, cancelled };
// True for the last three states, which are final.
inline bool has_ended(TaskState state) {
  return state != TaskState::queued && state != TaskState::running;
}
// "queued", "running", ...
const char* to_string(TaskState state);

struct SubmitOptions {
  int priority = 0;  // higher ones begin first; equal ones in order of submission
  // How often the task may be restarted after its worker was lost; it is never restarted after an
  // exception. With more than 0, a finished task may have run more than once, or in part.
  int retries = 0;
  double limit = 0;   // seconds that it may run before it is stopped as by cancel(); 0: no limit
  uint64_t seed = 0;  // of task_random(); 0: the pool's seed
};

// The status of one worker.
struct WorkerStatus {
  int64_t pid = 0;  // 0: a thread, or not started yet
  bool ready = false;
  uint64_t task = 0;  // number of the running task; 0: none
};

// Whether the task is asked to stop; false outside of tasks. Thread-safe.
bool task_cancelled();
// Throws Cancelled if the task is asked to stop.
void check_cancelled();
// The index of the worker in its pool, from 0, and the number of workers; -1 and 0 outside of
// tasks. Thread-safe, like all functions here.
int task_worker();
int pool_workers();

// The path of a file that was attached to the pool (Pool::attach_file()) or to the batch job
// (BatchOptions::attach), by its name. Throws InvalidArgument for an unknown name, and outside of
// tasks and functions of batch jobs.
std::string attached_file(const std::string& name);

// A sequence of random numbers. It is a function of seed and task only, not of the worker. Copies
// and sent values keep the position in the sequence. One thread at a time.
class TaskRandom {
 public:
  explicit TaskRandom(uint64_t seed = 0, uint64_t task = 0) : seed_(seed), task_(task) {}

  double uniform() { return stream().uniform(position_++); }             // in [0, 1)
  double normal() { return stream().normal(position_++); }               // standard normal
  uint64_t below(uint64_t n) { return stream().below(position_++, n); }  // in {0, ..., n - 1}
  int64_t between(int64_t low, int64_t high) {                           // both included
    return stream().between(position_++, low, high);
  }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seed_, task_, position_);
  }

 private:
  RandomStream stream() const {
    return RandomStream({.seed = seed_, .use = RandomUse::task, .a = task_});
  }
  uint64_t seed_, task_, position_ = 0;
};

// The random numbers of the running task: from the pool's seed (or SubmitOptions::seed) and the
// task's number in the pool, or the index in a loop. Outside of tasks, seed and number are 0.
TaskRandom task_random();

}  // namespace lockstep
