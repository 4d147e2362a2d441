// What a task of a pool can ask about itself while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/base/shared_memory.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

// Whether somebody wants the task to stop; false outside of tasks. Thread-safe.
bool task_cancelled();
// Throws Cancelled then.
void check_cancelled();
// The index of the worker in its pool, from 0, and how many there are; -1 and 0 outside of tasks.
// Thread-safe, as all of these.
int task_worker();
int pool_workers();

// Where a file lies that was attached to the pool (Pool::attach_file()), by its name. Throws
// InvalidArgument for one that was not, and outside of tasks.
std::string attached_file(const std::string& name);

// Random numbers one after the other. What comes is a function of seed and task alone, not of who
// runs it; copying or sending one saves where it is. One thread at a time.
class TaskRandom {
 public:
  explicit TaskRandom(uint64_t seed = 0, uint64_t task = 0) : seed_(seed), task_(task) {}

  double uniform() { return stream().uniform(position_++); }             // in [0, 1)
  double normal() { return stream().normal(position_++); }               // standard
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

// That of the running task: of the pool's seed (or SubmitOptions::seed) and the task's number among
// those that were submitted, or the index in a loop. Outside of tasks seed and number are 0.
TaskRandom task_random();

namespace detail {

// Seconds for which a client may take nothing from who sends to it.
inline constexpr double send_patience = 600;
inline constexpr const char* client_takes_nothing =
    "[queue] the client has taken nothing for ten minutes";

}  // namespace detail

// How tasks are run, for those who run them.
class TaskContext {
 public:
  virtual ~TaskContext() = default;
  virtual bool cancelled() const = 0;
  // Hands a message to a queue of the client: when it returns, it will be delivered. Waits while
  // the client takes none. Throws Timeout after ten minutes.
  virtual void send(uint64_t queue, std::span<const std::byte> message) = 0;
  // The next message from the client for this worker; none at the limit, or when the task is
  // cancelled.
  virtual std::optional<std::vector<std::byte>> receive(uint64_t queue, const TimeLimit& limit) = 0;

  // The path of an attached file; "" where there is none.
  virtual std::string file(const std::string& name) const = 0;
  // What the pool's client and workers share.
  virtual const SharedMemory& memory() const = 0;

  int worker = 0, workers = 1;
  uint64_t seed = 0, task = 0;

  // Of this thread, or of this process; null outside of tasks.
  static TaskContext* current();
  // Makes one current while it lives: of this thread or, where a process has one task at a time,
  // of all its threads.
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
