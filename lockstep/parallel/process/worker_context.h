// The environment of a task in a worker process, and the start of such a process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/messages/channel.h"

namespace lockstep {

// Whether this program has a Runtime, so that its processes can be workers. Thread-safe once main()
// has begun.
bool has_runtime();
void set_has_runtime();

// Reads the client's start message, runs the worker's one task, and ends the process.
[[noreturn]] void run_as_worker();

// The message that a worker process receives at its start.
struct WorkerStart {
  ChannelTicket ticket;
  int64_t parent = 0;         // process id of the client
  std::vector<int> cores;     // cores that it may run on; empty: all
  uint64_t memory_bytes = 0;  // limit for its own data; 0: no limit
  std::vector<std::pair<std::string, std::string>> environment;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ticket, parent, cores, memory_bytes, environment);
  }
};

// The environment of a task in a worker process. Thread-safe.
class WorkerContext {
 public:
  uint32_t worker() const { return worker_; }  // its number, never reused
  // The arena that it shares with its client.
  const SharedMemory& memory() const { return *memory_; }

 private:
  friend struct WorkerMain;
  uint32_t worker_ = 0;
  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<ChannelClient> channel_;
};

// The context of this process. Throws InvalidArgument outside of workers.
WorkerContext& worker_context();

// The first byte of a worker's messages. A TaskError follows `failed`.
enum class WorkerMessage : uint8_t { hello = 1, failed = 2 };

// The error of a failed task, for its client to rethrow.
struct TaskError {
  std::string kind, message, hint;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(kind, message, hint);
  }
  // From the exception being handled.
  static TaskError current();
  // Throws it as the original subclass of Error, with `where` ("worker 3: ") in front of the
  // message.
  [[noreturn]] void rethrow(const std::string& where) const;
};

}  // namespace lockstep
