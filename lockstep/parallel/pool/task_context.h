// The interface of a running task to its pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/bytes.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/pool/task.h"

namespace lockstep {

namespace detail {

// Seconds that a sender waits for a client that takes nothing.
inline constexpr double send_patience = 600;
inline constexpr const char* client_takes_nothing =
    "[queue] the client has read no message for ten minutes";

}  // namespace detail

// Implemented by each kind of pool.
class TaskContext {
 public:
  virtual ~TaskContext() = default;
  virtual bool cancelled() const = 0;
  // Sends a message to a queue of the client. Once it returns, the message will be delivered. Waits
  // while the client takes none. Throws Timeout after ten minutes.
  virtual void send(uint64_t queue, std::span<const std::byte> message) = 0;
  // The next message from the client for this worker; none at the limit, or when the task is
  // cancelled.
  virtual std::optional<Bytes> receive(uint64_t queue, const TimeLimit& limit) = 0;

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
