// What a pool and one of its worker processes share.
#pragma once

#include <atomic>
#include <new>
#include <string>

#include "lockstep/base/alignment.h"
#include "lockstep/base/shared_memory.h"
#include "lockstep/parallel/comm/byte_ring.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/runtime.h"

namespace lockstep::detail {

// Lies at the beginning of a seat's memory; the rings of orders and of reports follow.
struct SeatHead {
  Bell bell;                             // rung for the worker
  std::atomic<uint64_t> next;            // the number of the next order that may be taken
  std::atomic<uint64_t> cancelled;       // the order after the one that shall stop
  std::atomic<uint64_t> messages_taken;  // bytes that tasks have received
  std::atomic<uint32_t> orders_wait;     // the client has more than the ring takes
};

constexpr size_t kOrders = size_t{256} << 10, kReports = size_t{1} << 20;
inline size_t seat_bytes() {
  return round_up(sizeof(SeatHead)) + ByteRing::bytes(kOrders) + ByteRing::bytes(kReports);
}
inline SeatHead& head_of(const SharedRegion& seat) {
  return *std::launder(reinterpret_cast<SeatHead*>(seat.get()));
}
inline ByteRing orders_of(const SharedRegion& seat) {
  return ByteRing(seat.get() + round_up(sizeof(SeatHead)), kOrders);
}
inline ByteRing reports_of(const SharedRegion& seat) {
  return ByteRing(seat.get() + round_up(sizeof(SeatHead)) + ByteRing::bytes(kOrders), kReports);
}

struct SeatTicket {
  SharedPlace seat, bell;  // of the worker; of the client
  int index = 0;           // in the pool
  int slot = 0;            // among the workers of its host
  bool spin = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, bell, index, slot, spin);
  }
};

// Runs orders until the client ends the process.
void serve_pool(SeatTicket ticket);

// What a worker is told; the first byte says which. A message: the queue's number, the content.
// A file: its name and its path.
enum class Order : uint8_t { task = 1, message = 2, file = 3 };

// A task for a worker. Numbers count up by one; those below SeatHead::next when it comes are void.
struct TaskOrder {
  uint64_t order = 0;  // stands first, for who looks for nothing else
  uint64_t task = 0, seed = 0;
  int workers = 0;
  FunctionId function;
  Bytes arguments;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(order, task, seed, workers, function, arguments);
  }
};

// What a worker reports; the first byte says which.
enum class Report : uint8_t { ready = 1, finished = 2, failed = 3, message = 4 };

struct ReadyNote {
  int diary = -1;  // its descriptor there

  template <class Archive>
  void serialize(Archive& archive) {
    archive(diary);
  }
};

struct EndNote {
  uint64_t order = 0;
  Bytes result;     // where it finished
  TaskError error;  // where it failed
  std::string diary;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(order, result, error, diary);
  }
};

// The end of what a task has printed, and giving back the memory of what stands before that.
std::string read_diary(int descriptor);
void forget_diary(int descriptor);

}  // namespace lockstep::detail
