// The remote agent's work for a pool of another machine: it starts workers on its host, carries
// orders and reports between their memory and the client, and mirrors the pool's memory.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/cluster/remote/agent_messages.h"
#include "lockstep/cluster/remote/agent_process.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/supervisor.h"

namespace lockstep::detail {
namespace {

// Seconds between reports of changes.
constexpr double kChangesPeriod = 0.05;

class HostAgent {
 public:
  explicit HostAgent(const HostSetup& setup)
      : setup_(setup),
        bell_memory_(map(setup.bell)),
        bell_(*std::launder(reinterpret_cast<Bell*>(bell_memory_.get()))),
        supervisor_(memory_, pool_options(setup), reports()) {}

  [[noreturn]] void run() {
    send(HostReady{available_cores(), host_context().address()});
    supervisor_.begin();
    const std::thread report_thread = quiet_thread([this] { serve([this] { carry_reports(); }); });
    serve([this] {
      const auto message = host_context().receive(TimeLimit(1));
      if (!message) return;
      const auto order = decode<HostOrder>(*message);
      const MutexLock lock(mutex_);
      take_order(order);
    });
  }

 private:
  struct Slot {
    explicit Slot(SharedRegion r)
        : region(std::move(r)),
          head(head_of(region)),
          orders(orders_of(region)),
          reports(reports_of(region)) {}
    SharedRegion region;
    SlotHeader& head;
    MessageWriter orders;
    MessageReader reports;
    Bytes order;  // received part of the next order
    uint32_t worker = 0;
    int64_t pid = 0;
    Descriptor diary;
    uint64_t taken = 0;               // messages_taken, as last reported
    uint64_t reported = 0, room = 0;  // bytes of reports: sent, and taken by the client
    bool broken = false;
  };
  struct Watched {
    SharedRange range;
    SharedRegion region;
    Bytes sent;
  };

  static ProcessPoolOptions pool_options(const HostSetup& setup) {
    return {.workers = setup.workers, .threads = setup.threads, .memory_bytes = setup.memory_bytes};
  }

  // Runs `body` until the process ends. An error is reported to the client and ends the process.
  template <class Body>
  [[noreturn]] static void serve(Body body) {
    try {
      for (;;) body();
    } catch (...) {
      give_up(TaskError::current().message);
    }
  }

  [[noreturn]] static void give_up(const std::string& why) {
    try {
      send(SlotEnded{no_slot, {.how = why}});
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    } catch (const std::exception&) {
      // The client will detect the end of this process.
    }
    _exit(1);
  }

  template <class Report>
  static void send(const Report& report) {
    host_context().send(encode(HostReport(report)));
  }

  SharedRegion map(const SharedRange& range) {
    memory_.cover(range);
    return memory_.map(range);
  }

  // A cached mapping of a region that is accessed repeatedly.
  const SharedRegion& mapped(const SharedRange& range) LOCKSTEP_REQUIRES(mutex_) {
    auto& [size, region] = mapped_[range.offset];
    if (!region || size < range.bytes) {
      region = map(range);
      size = range.bytes;
    }
    return region;
  }

  // ---- requests of the client ----

  void take_order(const HostOrder& order) LOCKSTEP_REQUIRES(mutex_) {
    std::visit([this](const auto& what) LOCKSTEP_REQUIRES(mutex_) { take(what); }, order);
  }

  void take(const SlotHere& what) LOCKSTEP_REQUIRES(mutex_) {
    const size_t offset = what.ticket.slot.offset;
    slots_.erase(offset);
    slots_.emplace(offset, map(what.ticket.slot));
    supervisor_.start(what.ticket);
  }

  void take(const SlotOrder& what) LOCKSTEP_REQUIRES(mutex_) {
    Slot* const slot = slot_at(what.slot);
    if (slot == nullptr) return;
    slot->order.insert(slot->order.end(), what.chunk.begin(), what.chunk.end());
    if (!what.last) return;
    memory_.cover({0, what.memory});
    // The next order that may begin; the client may have taken back earlier ones.
    if (what.order > 0) slot->head.next = what.order - 1;
    slot->orders.push(slot->order);
    slot->order.clear();
    write_orders(*slot);
  }

  void take(const SlotCancel& what) LOCKSTEP_REQUIRES(mutex_) {
    Slot* const slot = slot_at(what.slot);
    if (slot == nullptr) return;
    slot->head.cancelled = what.cancelled;
    slot->head.bell.ring();
  }

  void take(const SlotRoom& what) LOCKSTEP_REQUIRES(mutex_) {
    Slot* const slot = slot_at(what.slot);
    if (slot == nullptr) return;
    slot->room = std::max(slot->room, what.bytes);
    bell_.ring();
  }

  void take(const SlotKill& what) LOCKSTEP_REQUIRES(mutex_) {
    Slot* const slot = slot_at(what.slot);
    if (slot != nullptr && slot->worker != 0) supervisor_.kill(slot->worker, what.reason);
  }

  void take(const MemoryWrite& what) LOCKSTEP_REQUIRES(mutex_) {
    const SharedRegion& region = mapped(what.range);
    check(what.range, what.at, what.chunk.size());
    std::memcpy(region.get() + what.at, what.chunk.data(), what.chunk.size());
    send(MemoryWritten{what.chunk.size()});
  }

  void take(const MemoryRead& what) LOCKSTEP_REQUIRES(mutex_) {
    const SharedRegion region = map(what.range);
    size_t at = 0;
    in_chunks({region.get(), what.range.bytes}, [&](Bytes chunk, bool last) {
      const size_t bytes = chunk.size();
      send(MemoryChunk{what.range, at, std::move(chunk), what.number, last});
      at += bytes;
    });
  }

  void take(const MemoryWatch& what) LOCKSTEP_REQUIRES(mutex_) {
    watched_[what.range.offset] = {what.range, map(what.range), {}};
  }

  void take(const MemoryForget& what) LOCKSTEP_REQUIRES(mutex_) {
    watched_.erase(what.range.offset);
    mapped_.erase(what.range.offset);
    memory_.cover(what.range);
    memory_.free(what.range);
  }

  void take(const GroupEnd& what) LOCKSTEP_REQUIRES(mutex_) {
    LocalGroup::abort(mapped(what.range));
  }

  static void check(const SharedRange& range, size_t at, size_t bytes) {
    if (at > range.bytes || bytes > range.bytes - at) {
      throw DataError("[host] bytes outside of a region");
    }
  }

  Slot* slot_at(size_t offset) LOCKSTEP_REQUIRES(mutex_) {
    const auto found = slots_.find(offset);
    return found == slots_.end() ? nullptr : &found->second;
  }

  static void write_orders(Slot& slot) {
    if (!slot.orders.flush()) {
      slot.head.orders_wait = 1;
      // The worker may have made room before it could see the flag.
      if (slot.orders.flush()) slot.head.orders_wait = 0;
    }
    slot.head.bell.ring();
  }

  // ---- reports of workers ----

  void carry_reports() LOCKSTEP_EXCLUDES(mutex_) {
    const uint32_t seen = bell_.rings();
    double left = 0;
    {
      const MutexLock lock(mutex_);
      for (auto& [offset, slot] : slots_) carry_reports(offset, slot);
      if (next_changes_.reached()) send_changes();
      left = next_changes_.left();
    }
    bell_.wait(seen, TimeLimit(std::max(left, 1e-3)));
  }

  // `all`: ignores kReportsAhead, for a worker that has ended.
  void carry_reports(size_t offset, Slot& slot, bool all = false) LOCKSTEP_REQUIRES(mutex_) {
    if (slot.broken) return;
    if (slot.head.orders_wait.exchange(0) != 0) write_orders(slot);
    try {
      while (all || slot.reported - slot.room < kReportsAhead) {
        const auto message = slot.reports.next();
        if (!message) break;
        slot.reported += message->size();
        std::span<const std::byte> rest = *message;
        if (take_prefix<Report>(rest) == Report::ready) {
          const std::string path = "/proc/" + std::to_string(slot.pid) + "/fd/" +
                                   std::to_string(decode<ReadyNote>(rest).diary);
          slot.diary = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
        }
        in_chunks(*message, [&](Bytes chunk, bool last) {
          send(SlotReport{offset, last, std::move(chunk)});
        });
      }
      if (slot.reports.took()) slot.head.bell.ring();
    } catch (const DataError& e) {
      slot.broken = true;
      supervisor_.kill(slot.worker, std::string("sent an invalid message (") + e.what() + ")");
    }
  }

  void send_changes() LOCKSTEP_REQUIRES(mutex_) {
    next_changes_ = TimeLimit(kChangesPeriod);
    for (auto& [offset, slot] : slots_) {
      const uint64_t taken = slot.head.messages_taken.load();
      if (taken != slot.taken) send(SlotTaken{offset, taken});
      slot.taken = taken;
      if (slot.diary) forget_diary(slot.diary.get());
    }
    for (auto& [offset, w] : watched_) {
      const Bytes now = read_words(w.region.get(), w.range.bytes);
      if (now == w.sent) continue;
      send(MemoryChunk{w.range, 0, now, 0, true});
      w.sent = now;
    }
  }

  // Copies in atomic words, because other processes write there.
  static Bytes read_words(std::byte* from, size_t bytes) {
    Bytes copy(bytes);
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
      const uint64_t word = reinterpret_cast<std::atomic<uint64_t>*>(from + at)->load();
      std::memcpy(copy.data() + at, &word, sizeof word);
    }
    return copy;
  }

  SupervisorEvents reports() {
    return {
        .started =
            [this](const SlotTicket& ticket, uint32_t worker, pid_t pid, const WorkerEnd& why) {
              const MutexLock lock(mutex_);
              Slot* const slot = slot_at(ticket.slot.offset);
              if (slot == nullptr) return;
              slot->worker = worker;
              slot->pid = pid;
              send(SlotStarted{ticket.slot.offset, worker, pid, why});
              if (worker == 0) slots_.erase(ticket.slot.offset);
              bell_.ring();
            },
        .ended =
            [this](uint32_t worker, const WorkerEnd& end) {
              const MutexLock lock(mutex_);
              for (auto at = slots_.begin(); at != slots_.end(); ++at) {
                if (at->second.worker != worker) continue;
                carry_reports(at->first, at->second, true);
                send_changes();
                SlotEnded ended{at->first, end};
                ended.end.printed = read_diary(at->second.diary.get());
                send(ended);
                slots_.erase(at);
                return;
              }
            },
        .failed = [](const std::string& why) { give_up(why); },
        .refused = [](int64_t) {},
    };
  }

  const HostSetup setup_;
  SharedMemory memory_{"lockstep-pool"};
  SharedRegion bell_memory_;
  Bell& bell_;
  Mutex mutex_;
  std::map<size_t, Slot> slots_ LOCKSTEP_GUARDED_BY(mutex_);  // by offset
  std::map<size_t, Watched> watched_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<size_t, std::pair<size_t, SharedRegion>> mapped_ LOCKSTEP_GUARDED_BY(mutex_);
  TimeLimit next_changes_ LOCKSTEP_GUARDED_BY(mutex_){kChangesPeriod};
  LocalSupervisor supervisor_;
};

}  // namespace

void serve_as_host(HostSetup setup) { HostAgent(setup).run(); }

}  // namespace lockstep::detail
