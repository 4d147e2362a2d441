// Messages between a pool and its remote agents. A slot is identified by its offset in the memory
// that the agents mirror. Long content is sent in chunks.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/process/slot_memory.h"
#include "lockstep/parallel/process/worker_end.h"

namespace lockstep::detail {

constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t no_slot = ~size_t{0};
// Bytes of a worker's reports (whole messages) that its agent sends ahead of those that the client
// has taken. Beyond that a worker waits for a slow client, like the workers on the client's
// machine.
constexpr uint64_t kReportsAhead = 4 * kChunk;

// ---- to a host ----

// Starts a worker for the slot.
struct SlotHere {
  SlotTicket ticket;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ticket);
  }
};

// A chunk of an order.
struct SlotOrder {
  size_t slot = 0;
  bool last = true;
  Bytes chunk;
  size_t memory = 0;   // size of the pool's memory; offsets in the order lie below it
  uint64_t order = 0;  // for a task: TaskOrder::order + 1

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, last, chunk, memory, order);
  }
};

// New value of SlotHeader::cancelled.
struct SlotCancel {
  size_t slot = 0;
  uint64_t cancelled = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, cancelled);
  }
};

// Bytes of the slot's reports that the client has taken so far.
struct SlotRoom {
  size_t slot = 0;
  uint64_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, bytes);
  }
};

struct SlotKill {
  size_t slot = 0;
  std::string reason;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, reason);
  }
};

// Bytes for a region; answered by MemoryWritten.
struct MemoryWrite {
  SharedRange range;
  size_t at = 0;  // within the region
  Bytes chunk;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(range, at, chunk);
  }
};

// Answered by MemoryChunks with this number.
struct MemoryRead {
  SharedRange range;
  uint64_t number = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(range, number);
  }
};

// Until the region is forgotten, its changes are reported periodically and before the end of a
// worker.
struct MemoryWatch {
  SharedRange range;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(range);
  }
};

struct MemoryForget {
  SharedRange range;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(range);
  }
};

// Ends the LocalGroup in this region.
struct GroupEnd {
  SharedRange range;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(range);
  }
};

using HostOrder = std::variant<SlotHere, SlotOrder, SlotCancel, SlotRoom, SlotKill, MemoryWrite,
                               MemoryRead, MemoryWatch, MemoryForget, GroupEnd>;

// ---- from a host ----

struct HostReady {
  int cores = 1;
  std::string address;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(cores, address);
  }
};

// A process serves the slot. If `worker` is 0, none could be started for the reason `why`.
struct SlotStarted {
  size_t slot = 0;
  uint32_t worker = 0;
  int64_t pid = 0;
  WorkerEnd why;  // if `worker` is 0

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, worker, pid, why);
  }
};

struct SlotReport {
  size_t slot = 0;
  bool last = true;
  Bytes chunk;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, last, chunk);
  }
};

// New value of SlotHeader::messages_taken.
struct SlotTaken {
  size_t slot = 0;
  uint64_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, bytes);
  }
};

struct SlotEnded {
  size_t slot = 0;  // no_slot: the agent itself cannot continue
  WorkerEnd end;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, end);
  }
};

struct MemoryWritten {
  size_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(bytes);
  }
};

struct MemoryChunk {
  SharedRange range;
  size_t at = 0;
  Bytes chunk;
  uint64_t number = 0;  // of the MemoryRead; 0: of a watched region
  bool last = true;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(range, at, chunk, number, last);
  }
};

using HostReport = std::variant<HostReady, SlotStarted, SlotReport, SlotTaken, SlotEnded,
                                MemoryWritten, MemoryChunk>;

// Settings of a pool's remote agent.
struct HostSetup {
  SharedRange bell;
  int workers = 1, threads = 1;  // workers on its host; threads for each of them
  uint64_t memory_bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(bell, workers, threads, memory_bytes);
  }
};

// The remote agent's task: runs a pool's workers on this host until the client is gone.
void serve_as_host(HostSetup setup);

// Splits a message: calls use(chunk, whether it is the last).
template <class Use>
void in_chunks(std::span<const std::byte> message, Use use) {
  for (size_t at = 0; at == 0 || at < message.size(); at += kChunk) {
    const auto chunk = message.subspan(at, std::min(kChunk, message.size() - at));
    use(Bytes(chunk.begin(), chunk.end()), at + kChunk >= message.size());
  }
}

}  // namespace lockstep::detail
