// What a program that uses worker processes begins with:
//
//   int main(int argc, char** argv) {
//     lockstep::Runtime runtime(argc, argv);
//     ...
//   }
//
// Workers run the same executable; in them the constructor does what the client asks and never
// returns.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/shared_memory.h"
#include "lockstep/parallel/process/channel.h"

namespace lockstep {

class Runtime {
 public:
  // Before anything that threads, files or arguments depend on. Raises the process's soft limit on
  // open descriptors to the hard one. From now on a file beyond the limit of sizes is an error and
  // no signal (SIGXFSZ is ignored).
  Runtime(int argc, char** argv);
  // Whether there is one: worker processes can be started.
  static bool present();
};

// What a worker process is told when it starts.
struct WorkerStart {
  ChannelTicket ticket;
  int64_t parent = 0;         // process id of the client
  std::vector<int> cores;     // it may run on these only; empty: on all
  uint64_t memory_bytes = 0;  // of its own data; 0: no limit
  std::vector<std::pair<std::string, std::string>> environment;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ticket, parent, cores, memory_bytes, environment);
  }
};

// What a task in a worker process has around it. Thread-safe.
class WorkerContext {
 public:
  uint32_t worker() const { return worker_; }  // its number, never used again for another
  // The arena that it shares with its client.
  const SharedMemory& memory() const { return *memory_; }
  // To the client and from it.
  void send(std::span<const std::byte> content);
  std::optional<Bytes> receive(const TimeLimit& limit) { return channel_->receive(limit); }

 private:
  friend struct WorkerMain;
  uint32_t worker_ = 0;
  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<ChannelClient> channel_;
};

// That of this process. Throws InvalidArgument outside of workers.
WorkerContext& worker_context();

// How messages of workers begin; what follows is the task's own.
enum class WorkerSays : uint8_t { hello = 1, message = 2, finished = 3, failed = 4 };

// Why a task failed, as its client rethrows it.
struct TaskError {
  std::string kind, message, hint;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(kind, message, hint);
  }
  // Of the exception being handled.
  static TaskError current();
  // Throws it, as the child of Error that it was; `where` stands in front ("worker 3: ").
  [[noreturn]] void rethrow(const std::string& where) const;
};

}  // namespace lockstep
