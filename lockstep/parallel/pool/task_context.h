// Information about the running task of a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/numeric/random.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

// Whether the task is asked to stop; false outside of tasks. Thread-safe.
bool task_cancelled();
// Throws Cancelled if the task is asked to stop.
void check_cancelled();
// The index of the worker in its pool, from 0, and the number of workers; -1 and 0 outside of
// tasks. Thread-safe, like all functions here.
int task_worker();
int pool_workers();

// The path of a file that was attached to the pool (Pool::attach_file()), by its name. Throws
// InvalidArgument for an unknown name, and outside of tasks.
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

namespace detail {

// Seconds that a sender waits for a client that takes nothing.
inline constexpr double send_patience = 600;
inline constexpr const char* client_takes_nothing =
    "[queue] the client has taken nothing for ten minutes";

}  // namespace detail

// The interface of a running task to its pool, implemented by each kind of pool.
class TaskContext {
 public:
  virtual ~TaskContext() = default;
  virtual bool cancelled() const = 0;
  // Sends a message to a queue of the client. Once it returns, the message will be delivered. Waits
  // while the client takes none. Throws Timeout after ten minutes.
  virtual void send(uint64_t queue, std::span<const std::byte> message) = 0;
  // The next message from the client for this worker; none at the limit, or when the task is
  // cancelled.
  virtual std::optional<std::vector<std::byte>> receive(uint64_t queue, const TimeLimit& limit) = 0;

  // The path of an attached file; "" if there is none.
  virtual std::string file(const std::string& name) const = 0;
  // The arena shared by the pool's client and workers.
  virtual const SharedMemory& memory() const = 0;

  int worker = 0, workers = 1;
  uint64_t seed = 0, task = 0;

  // The context of this thread, or of this process; null outside of tasks.
  static TaskContext* current();
  // Makes a context current during its own lifetime: for this thread or, if the process runs one
  // task at a time, for all its threads.
  class Scope {
   public:
    explicit Scope(TaskContext& context, bool of_process = false);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const bool of_process_;
  };
};

}  // namespace lockstep
