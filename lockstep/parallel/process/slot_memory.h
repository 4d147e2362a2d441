// The memory that a pool shares with one of its worker processes, and the messages in it.
#pragma once

#include <atomic>
#include <new>
#include <string>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/messages/byte_ring.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/worker_context.h"

namespace lockstep::detail {

// At the beginning of a slot's memory; the rings of orders and of reports follow.
struct SlotHeader {
  Bell bell;                             // wakes the worker
  std::atomic<uint64_t> next;            // number of the next order that may be taken
  std::atomic<uint64_t> cancelled;       // number of the order to stop, plus one
  std::atomic<uint64_t> messages_taken;  // bytes that tasks have received
  std::atomic<uint32_t> orders_wait;     // the client has orders that the ring has no room for
};

constexpr size_t kOrders = size_t{256} << 10, kReports = size_t{1} << 20;
inline size_t slot_bytes() {
  return round_up(sizeof(SlotHeader)) + ByteRing::bytes(kOrders) + ByteRing::bytes(kReports);
}
inline SlotHeader& head_of(const SharedRegion& slot) {
  return *std::launder(reinterpret_cast<SlotHeader*>(slot.get()));
}
inline ByteRing orders_of(const SharedRegion& slot) {
  return ByteRing(slot.get() + round_up(sizeof(SlotHeader)), kOrders);
}
inline ByteRing reports_of(const SharedRegion& slot) {
  return ByteRing(slot.get() + round_up(sizeof(SlotHeader)) + ByteRing::bytes(kOrders), kReports);
}

struct SlotTicket {
  SharedRange slot, bell;  // of the worker; of the client
  int index = 0;           // in the pool
  int local_rank = 0;      // among the workers of its host
  bool spin = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(slot, bell, index, local_rank, spin);
  }
};

// Runs orders until the client ends the process.
void serve_pool(SlotTicket ticket);

// Orders to a worker; the first byte is the kind. A message consists of the queue's number and the
// content, a file of its name and its path.
enum class Order : uint8_t { task = 1, message = 2, file = 3 };

// A task for a worker. Order numbers increase by one. An order whose number is below
// SlotHeader::next on arrival is void.
struct TaskOrder {
  uint64_t order = 0;  // first, so that it can be read without decoding the rest
  uint64_t task = 0, seed = 0;
  int workers = 0;
  FunctionId function;
  Bytes arguments;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(order, task, seed, workers, function, arguments);
  }
};

// Reports of a worker; the first byte is the kind.
enum class Report : uint8_t { ready = 1, finished = 2, failed = 3, message = 4 };

struct ReadyNote {
  int diary = -1;  // its descriptor in the worker process

  template <class Archive>
  void serialize(Archive& archive) {
    archive(diary);
  }
};

struct EndNote {
  uint64_t order = 0;
  Bytes result;     // if it finished
  TaskError error;  // if it failed
  std::string diary;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(order, result, error, diary);
  }
};

// The end of a task's output; forget_diary() frees the memory of the output before that.
std::string read_diary(int descriptor);
void forget_diary(int descriptor);

}  // namespace lockstep::detail
