#include "lockstep/cluster/remote/remote_hosts_thread.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"
#include "lockstep/cluster/remote/host_processes.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/process/process_pool_options.h"

namespace lockstep::detail {
namespace {

// Bytes of regions that may be in transit to a host without acknowledgment.
constexpr size_t kUnderWay = 16 * kChunk;
// Seconds for hosts that are started externally.
constexpr double kJoinLimit = 600;
// The first number of a worker on another host; the local supervisor's numbers lie below.
constexpr uint32_t kFirstNumber = 1u << 31;

struct End {
  uint32_t number;
  WorkerEnd end;
  // The deadline for the pool to take the worker's earlier reports.
  TimeLimit limit{5};
};

// A remote worker. This thread reads its orders and writes its reports in its place.
struct RemoteSlot {
  RemoteSlot(SharedRegion r, const SlotTicket& t, int h)
      : region(std::move(r)),
        ticket(t),
        host(h),
        orders(orders_of(region)),
        reports(reports_of(region)) {}

  SharedRegion region;
  SlotTicket ticket;
  int host = 0;
  uint32_t worker = 0;  // its number in the pool; 0: not started yet
  MessageReader orders;
  MessageWriter reports;
  bool more = false;                    // reports wait for room
  Bytes report;                         // received part of the next report
  uint64_t came = 0, acknowledged = 0;  // bytes of reports: received, and acknowledged to the host
  uint64_t cancelled = 0;
  std::optional<End> end;  // reported once all reports are in the ring

  SlotHeader& head() const { return head_of(region); }
};

struct Host {
  std::string name;
  int workers = 1;
  uint32_t process = 0;  // 0: none
  bool ready = false;    // its agent takes messages
  std::deque<Waiting> waiting = {};
  std::deque<std::pair<uint64_t, uint64_t>> pushes = {};  // number, and value of `sent` at its end
  uint64_t sent = 0, written = 0;  // bytes of regions: sent, and acknowledged
  std::set<size_t> watched = {};   // offsets
  std::set<size_t> slots = {};     // offsets
};

HostProcessOptions process_options(const RemoteHostsState& state) {
  const ProcessPoolOptions& options = state.options;
  HostProcessOptions o;
  if (!options.launch.empty()) o.launch = options.launch;
  o.environment = options.environment;
  o.starter = state.starter;
  if (!options.ports.empty()) {
    o.ports = parse_ports(options.ports, "\"ports\"");
    o.environment.emplace_back("LOCKSTEP_PORTS", options.ports);
  }
  o.address = state.address;
  o.same_processor = options.same_processor;
  if (const char* const folder = std::getenv("LOCKSTEP_KEY_FOLDER")) o.key_folder = folder;
  if (o.launch.starts_with("join ")) o.start_limit = kJoinLimit;
  return o;
}

// The body of the thread.
class HostLine {
 public:
  explicit HostLine(RemoteHostsState& state) : s_(state), processes_(process_options(state)) {
    for (const auto& host : s_.options.hosts) {
      if (!host.name.empty()) hosts_.push_back({.name = host.name, .workers = host.workers});
    }
  }

  std::string address() const { return processes_.address(); }

  void run() {
    for (;;) {
      // Before the checks, so that later rings are not missed.
      uint64_t rings = 0;
      [[maybe_unused]] const ssize_t n = read(s_.asked.get(), &rings, sizeof rings);
      // Orders are collected before the requests and sent after them. So a request that was made
      // before an order was written takes effect before it.
      std::vector<size_t> rung = take_rung();
      auto orders = collect_orders(rung);
      std::vector<Request> requests;
      {
        const MutexLock lock(s_.mutex);
        if (s_.ended) return;
        requests = std::exchange(s_.requests, {});
      }
      for (Request& request : requests) {
        std::visit([this](auto& what) { take(what); }, request);
      }
      for (auto& [host, order] : orders) waiting_of(host).emplace_back(std::move(order));
      bool stuck = false;
      for (auto at = waiting_.begin(); at != waiting_.end();) {
        Host& host = of(*at);
        if (host.process != 0 && !host.ready) {  // they are sent when it is
          at = waiting_.erase(at);
          continue;
        }
        stuck = !send_waiting(host) || stuck;
        at = host.waiting.empty() ? waiting_.erase(at) : std::next(at);
      }
      for (const size_t offset : rung) {
        const auto slot = slots_.find(offset);
        if (slot != slots_.end() && slot->second.more) write_reports(offset, slot->second);
      }
      for (auto at = ending_.begin(); at != ending_.end();) {
        const auto slot = slots_.find(*at);
        at = slot == slots_.end() || end_reported(slot) ? ending_.erase(at) : std::next(at);
      }
      auto event = processes_.wait(TimeLimit(stuck ? 0.005 : 0.5), s_.asked.get());
      for (; event; event = processes_.wait(TimeLimit(0), -1)) take(*event);
      const int64_t refused = processes_.strangers();
      if (refused > strangers_) s_.events.refused(refused - strangers_);
      strangers_ = refused;
    }
  }

 private:
  Host& of(int host) { return hosts_[static_cast<size_t>(host - 1)]; }
  int number_of_host(const Host& host) const { return static_cast<int>(&host - hosts_.data()) + 1; }

  // ---- to the hosts ----

  // A host's messages, of which some will wait.
  std::deque<Waiting>& waiting_of(int host) {
    waiting_.insert(host);
    return of(host).waiting;
  }

  // The slots whose rings have changed, each once.
  std::vector<size_t> take_rung() LOCKSTEP_EXCLUDES(s_.mutex) {
    std::vector<size_t> rung;
    {
      const MutexLock lock(s_.mutex);
      rung = std::exchange(s_.rung, {});
    }
    std::sort(rung.begin(), rung.end());
    rung.erase(std::unique(rung.begin(), rung.end()), rung.end());
    return rung;
  }

  std::vector<std::pair<int, HostOrder>> collect_orders(const std::vector<size_t>& rung) {
    std::vector<std::pair<int, HostOrder>> all;
    for (const size_t offset : rung) {
      const auto found = slots_.find(offset);
      if (found == slots_.end() || found->second.worker == 0) continue;
      RemoteSlot& slot = found->second;
      while (const auto message = slot.orders.next()) {
        std::span<const std::byte> rest = *message;
        uint64_t number = 0;
        if (take_prefix<Order>(rest) == Order::task) {
          const auto order = take_prefix<uint64_t>(rest);
          if (!begin(slot, order)) continue;
          number = order + 1;
        }
        in_chunks(*message, [&, at = offset, host = slot.host](Bytes chunk, bool last) {
          all.emplace_back(host, SlotOrder{at, last, std::move(chunk), s_.memory.size(), number});
        });
      }
      if (slot.orders.took() && slot.head().orders_wait.load() != 0) s_.events.rung(offset);
      const uint64_t cancelled = slot.head().cancelled.load();
      if (cancelled != slot.cancelled) all.emplace_back(slot.host, SlotCancel{offset, cancelled});
      slot.cancelled = cancelled;
    }
    return all;
  }

  // An order that is sent to another host counts as begun: it cannot be taken back.
  static bool begin(RemoteSlot& slot, uint64_t order) {
    return slot.head().next.compare_exchange_strong(order, order + 1);
  }

  // False if the channel had no room. Waiting for acknowledgments of pushes is not a failure.
  bool send_waiting(Host& host) {
    if (host.process == 0) host.waiting.clear();
    while (!host.waiting.empty()) {
      if (auto* const push = std::get_if<Push>(&host.waiting.front())) {
        if (!send_chunk(host, *push)) return host.sent - host.written >= kUnderWay;
        if (push->at < push->range.bytes) continue;
        host.pushes.emplace_back(push->number, host.sent);
      } else if (!processes_.send(host.process,
                                  encode(std::get<HostOrder>(host.waiting.front())))) {
        return false;
      }
      host.waiting.pop_front();
    }
    return true;
  }

  bool send_chunk(Host& host, Push& push) {
    if (host.sent - host.written >= kUnderWay) return false;
    if (!push.region) push.region = s_.memory.map(push.range);
    const size_t bytes = std::min(kChunk, push.range.bytes - push.at);
    const std::byte* const from = push.region.get() + push.at;
    const HostOrder order = MemoryWrite{push.range, push.at, Bytes(from, from + bytes)};
    if (!processes_.send(host.process, encode(order))) return false;
    push.at += bytes;
    host.sent += bytes;
    return true;
  }

  void take(StartRequest& what) {
    const SlotTicket& ticket = what.ticket;
    const int host = s_.host_of_slot[static_cast<size_t>(ticket.index)];
    Host& h = of(host);
    if (h.process == 0) {
      try {
        const HostSetup setup{.bell = s_.bell,
                              .workers = h.workers,
                              .threads = s_.options.threads,
                              .memory_bytes = s_.options.memory_bytes};
        h.process = processes_.start(h.name, host - 1, static_cast<int64_t>(hosts_.size()),
                                     make_call<&serve_as_host>(setup));
      } catch (const std::exception& e) {
        s_.events.started(ticket, 0, 0, start_failure(e));
        return;
      }
    }
    by_process_[h.process] = host;
    const size_t offset = ticket.slot.offset;
    slots_.erase(offset);
    slots_.emplace(offset, RemoteSlot(s_.memory.map(ticket.slot), ticket, host));
    h.slots.insert(offset);
    waiting_of(host).emplace_back(HostOrder(SlotHere{ticket}));
  }

  void take(KillRequest& what) {
    const auto known = by_worker_.find(what.worker);
    if (known == by_worker_.end()) return;
    waiting_of(slots_.at(known->second).host)
        .emplace_front(HostOrder(SlotKill{known->second, what.reason}));
  }

  void take(HostRequest& what) {
    if (what.host != 0) return take_for(of(what.host), what);
    for (Host& host : hosts_) take_for(host, what);
  }

  void take_for(Host& host, HostRequest& what) {
    if (host.process == 0) return;
    if (auto* const order = std::get_if<HostOrder>(&what.what)) note_watched(host, *order);
    auto& waiting = waiting_of(number_of_host(host));
    if (what.urgent) {
      waiting.push_front(what.what);
    } else {
      waiting.push_back(what.what);
    }
  }

  static void note_watched(Host& host, const HostOrder& order) {
    const auto* const watch = std::get_if<MemoryWatch>(&order);
    const auto* const forget = std::get_if<MemoryForget>(&order);
    if (watch != nullptr) host.watched.insert(watch->range.offset);
    if (forget != nullptr) host.watched.erase(forget->range.offset);
  }

  // ---- from the hosts ----

  void take(const WorkerEvent& event) {
    const auto found = by_process_.find(event.worker);
    if (found == by_process_.end()) return;
    Host* const host = &of(found->second);
    if (event.kind == WorkerEvent::Kind::lost) return lose(*host, event.end);
    if (event.kind != WorkerEvent::Kind::message) return;
    try {
      std::visit([&](auto&& what) { take(*host, what); }, decode<HostReport>(event.content));
    } catch (const std::exception& e) {
      processes_.kill(host->process, std::string("it sent an invalid message: ") + e.what());
    }
  }

  void lose(Host& host, const WorkerEnd& how) {
    const int number = number_of_host(host);
    const std::set<size_t> offsets = std::move(host.slots);
    by_process_.erase(host.process);
    host = Host{.name = host.name, .workers = host.workers};
    {
      const MutexLock lock(s_.mutex);
      s_.status(number).presence = 0;
      s_.changed.notify_all();
    }
    WorkerEnd end = how;
    end.how = "host " + host.name + " is lost: " + how.how;
    for (const size_t offset : offsets) {
      const auto at = slots_.find(offset);
      if (at == slots_.end()) continue;
      RemoteSlot& slot = at->second;
      if (slot.worker == 0) {
        s_.events.started(slot.ticket, 0, 0, end);
        slots_.erase(at);
      } else {
        end_slot(at, end);
      }
    }
  }

  using SlotIterator = std::map<size_t, RemoteSlot>::iterator;

  // Reports the worker's end as soon as its reports are in the ring.
  void end_slot(SlotIterator at, const WorkerEnd& end) {
    at->second.end = End{at->second.worker, end};
    if (!end_reported(at)) ending_.insert(at->first);
  }

  // Reports the worker's end if it is due, and erases the slot then.
  bool end_reported(SlotIterator at) {
    RemoteSlot& slot = at->second;
    if (!slot.end || (slot.more && !slot.end->limit.reached())) return false;
    s_.events.ended(slot.end->number, slot.end->end);
    by_worker_.erase(slot.end->number);
    of(slot.host).slots.erase(at->first);
    slots_.erase(at);
    return true;
  }

  void take(Host& host, const HostReady& ready) {
    host.ready = true;
    waiting_.insert(number_of_host(host));
    const MutexLock lock(s_.mutex);
    HostStatus& status = s_.status(number_of_host(host));
    status.presence = ++presences_;
    status.address = ready.address;
    status.cores = ready.cores;
    s_.changed.notify_all();
  }

  void take(Host& host, const SlotStarted& what) {
    const auto slot = slots_.find(what.slot);
    if (slot == slots_.end()) return;
    const uint32_t number = what.worker == 0 ? 0 : next_number_++;
    slot->second.worker = number;
    s_.events.started(slot->second.ticket, number, static_cast<pid_t>(what.pid), what.why);
    if (number == 0) {
      host.slots.erase(what.slot);
      slots_.erase(slot);
      return;
    }
    by_worker_[number] = what.slot;
    s_.ring(what.slot);  // orders may be waiting for it
  }

  void take(Host&, const SlotReport& what) {
    const auto found = slots_.find(what.slot);
    if (found == slots_.end()) return;
    RemoteSlot& slot = found->second;
    slot.report.insert(slot.report.end(), what.chunk.begin(), what.chunk.end());
    slot.came += what.chunk.size();
    if (!what.last) return;
    slot.reports.push(slot.report);
    slot.report.clear();
    write_reports(found->first, slot);
  }

  void write_reports(size_t offset, RemoteSlot& slot) {
    slot.more = !slot.reports.flush();
    s_.events.rung(offset);
    if (slot.more || slot.came - slot.acknowledged < kReportsAhead / 4) return;
    slot.acknowledged = slot.came;
    waiting_of(slot.host).emplace_front(HostOrder(SlotRoom{offset, slot.acknowledged}));
  }

  void take(Host&, const SlotTaken& what) {
    const auto slot = slots_.find(what.slot);
    if (slot != slots_.end()) slot->second.head().messages_taken = what.bytes;
  }

  void take(Host& host, const SlotEnded& what) {
    const auto slot = slots_.find(what.slot);
    if (what.slot == no_slot) processes_.kill(host.process, what.end.how);
    if (slot == slots_.end()) return;
    end_slot(slot, what.end);
  }

  void take(Host& host, const MemoryWritten& what) {
    host.written += what.bytes;
    while (!host.pushes.empty() && host.pushes.front().second <= host.written) {
      const MutexLock lock(s_.mutex);
      s_.arrived[static_cast<size_t>(number_of_host(host) - 1)] = host.pushes.front().first;
      host.pushes.pop_front();
      s_.changed.notify_all();
    }
  }

  void take(Host& host, const MemoryChunk& what) {
    // The pull was given up, or the region was forgotten meanwhile.
    if (what.number == 0 ? host.watched.count(what.range.offset) == 0 : !wanted(what.number))
      return;
    const SharedRegion region = s_.memory.map(what.range);
    if (what.at > what.range.bytes || what.chunk.size() > what.range.bytes - what.at) {
      throw DataError("[host] bytes outside of a region");
    }
    std::memcpy(region.get() + what.at, what.chunk.data(), what.chunk.size());
    if (what.number == 0 || !what.last) return;
    const MutexLock lock(s_.mutex);
    const auto pull = s_.pulls.find(what.number);
    if (pull != s_.pulls.end()) pull->second = true;
    s_.changed.notify_all();
  }

  bool wanted(uint64_t pull) const LOCKSTEP_EXCLUDES(s_.mutex) {
    const MutexLock lock(s_.mutex);
    return s_.pulls.count(pull) > 0;
  }

  RemoteHostsState& s_;
  HostProcesses processes_;
  std::vector<Host> hosts_;
  std::map<size_t, RemoteSlot> slots_;    // by offset
  std::set<int> waiting_;                 // hosts for which messages wait
  std::set<size_t> ending_;               // offsets of slots whose ends are to be reported
  std::map<uint32_t, int> by_process_;    // hosts, by the number of their process
  std::map<uint32_t, size_t> by_worker_;  // offsets, by number in the pool
  uint32_t next_number_ = kFirstNumber;
  uint64_t presences_ = 0;
  int64_t strangers_ = 0;
};

}  // namespace

std::string own_address(const ProcessPoolOptions& options, bool has_starter) {
  // An address, or the name of an interface, which has neither a dot nor a colon.
  if (options.address.find_first_of(".:") != std::string::npos) return options.address;
  if (!options.address.empty()) return address_of_interface(options.address);
  if (const char* const interface = std::getenv("LOCKSTEP_INTERFACE")) {
    if (*interface != 0) return address_of_interface(interface);
  }
  // Nothing listens beyond the loopback unless an address or a host says so.
  if (has_starter || options.launch.starts_with("join ")) return "127.0.0.1";
  for (const auto& host : options.hosts) {
    if (host.name.empty()) continue;
    try {
      return address_towards(host.name);
    } catch (const Error& e) {
      throw InvalidArgument(
          e.what(), "set host_address to an address of this machine that the hosts can reach");
    }
  }
  return {};
}

void run_remote_hosts(RemoteHostsState& state) {
  std::optional<HostLine> line;
  try {
    line.emplace(state);
    {
      const MutexLock lock(state.mutex);
      state.endpoint = line->address();
    }
    state.begun.set_value();
  } catch (...) {
    state.begun.set_exception(std::current_exception());
    throw;
  }
  line->run();
}

}  // namespace lockstep::detail
