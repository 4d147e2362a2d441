// The client's data about one worker of a process pool.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/os/descriptor.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/process/slot_memory.h"

namespace lockstep::detail {

// A task order that was sent to a worker.
struct SentTask {
  TaskPtr task;
  uint64_t order = 0;
  TimeLimit::Clock::time_point since;
};

// A message from a task for a queue of the client.
struct QueueMessage {
  uint64_t queue = 0;
  Bytes content;
};

// Guarded by the pool's mutex. A slot does not know its pool: the pool's functions that use slots
// are annotated, not its members.
struct WorkerSlot {
  WorkerSlot(SharedMemory& memory, int number)
      : index(number),
        range(memory.reserve(slot_bytes())),
        region(memory.map(range)),
        head(head_of(region)),
        orders(orders_of(region)),
        reports(reports_of(region)) {}

  // Sends an order. It waits here while the ring has no room for it.
  void send(Order what, std::span<const std::byte> rest) {
    orders.push(with_prefix(what, rest));
    if (!orders.flush()) {
      head.orders_wait = 1;
      // The worker may have made room before it could see the flag.
      if (orders.flush()) head.orders_wait = 0;
    }
    ring();
  }
  // Writes waiting orders.
  void send_waiting() {
    if (head.orders_wait.load() == 0) return;
    if (orders.flush()) head.orders_wait = 0;
    ring();
  }
  // Tells the worker that there are orders, or that there is room for reports.
  void ring() { far ? far() : head.bell.ring(); }
  bool begun(const SentTask& s) const { return s.order < head.next.load(); }

  const int index;
  const SharedRange range;
  const SharedRegion region;
  SlotHeader& head;
  MessageWriter orders;
  MessageReader reports;
  std::function<void()> far = {};  // wakes a worker on another host, in place of its bell
  uint32_t worker = 0;             // 0: not started yet
  pid_t pid = 0;
  std::optional<QueueMessage> held;  // has no room in its inbox
  uint64_t messages_sent = 0;        // bytes
  bool ready = false, retiring = false, ending = false;
  bool broken = false;            // its reports are unreadable
  std::optional<WorkerEnd> lost;  // once the process has ended
  Descriptor diary;
  std::deque<SentTask> sent;  // the first one runs
  uint64_t next_order = 0;
  double mean_seconds = 1;  // of its tasks
  std::optional<TimeLimit> grace, limit;
};

}  // namespace lockstep::detail
