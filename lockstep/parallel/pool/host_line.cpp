#include "lockstep/parallel/pool/host_line.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <set>

#include "lockstep/base/addresses.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/launch/host_processes.h"

namespace lockstep::detail {
namespace {

// Bytes of regions that are on their way to a host and not answered.
constexpr size_t kUnderWay = 16 * kPiece;
// Where a host's workers' numbers begin; below lie the pool's own.
constexpr uint32_t kNumbers = 1u << 24;

uint32_t number_of(int host, uint32_t worker) {
  return static_cast<uint32_t>(host) * kNumbers + worker;
}

struct End {
  uint32_t number;
  WorkerEnd end;
  std::string printed = {};
  // Until when the pool may take what it had said before.
  TimeLimit limit{5};
};

// A worker, as this thread stands in for it.
struct FarSeat {
  FarSeat(SharedRegion r, const SeatTicket& t, int h)
      : region(std::move(r)),
        ticket(t),
        host(h),
        orders(orders_of(region)),
        reports(reports_of(region)) {}

  SharedRegion region;
  SeatTicket ticket;
  int host = 0;
  uint32_t worker = 0;  // its number there; 0: not started yet
  MessageReader orders;
  MessageWriter reports;
  bool more = false;            // reports wait for room
  Bytes report;                 // what has come of the next one
  uint64_t came = 0, told = 0;  // bytes of reports; how many the host knows to be taken
  uint64_t cancelled = 0;
  std::optional<End> end;  // when all it has said is in the ring

  SeatHead& head() const { return head_of(region); }
};

struct Host {
  std::string name;
  int workers = 1;
  uint32_t process = 0;  // 0: none
  std::deque<Waiting> waiting = {};
  std::deque<std::pair<uint64_t, uint64_t>> pushes = {};  // number, bytes written when it is there
  uint64_t sent = 0, written = 0;                         // bytes of regions
  std::set<size_t> watched = {};                          // places
};

HostProcessOptions process_options(const ProcessPoolOptions& options, const std::string& address) {
  HostProcessOptions o;
  if (!options.launch.empty()) o.launch = options.launch;
  o.environment = options.environment;
  o.address = address;
  return o;
}

// What the thread does.
class HostLine {
 public:
  explicit HostLine(HostLineState& state)
      : s_(state), processes_(process_options(state.options, state.address)) {
    for (const auto& host : s_.options.hosts) {
      if (!host.name.empty()) hosts_.push_back({.name = host.name, .workers = host.workers});
    }
  }

  void run() {
    for (;;) {
      // Before looking: whoever rings from now on is heard.
      uint64_t rings = 0;
      [[maybe_unused]] const ssize_t n = read(s_.asked.get(), &rings, sizeof rings);
      // What was asked for before an order was written is done before it.
      auto orders = collect_orders();
      std::vector<Request> requests;
      {
        const std::lock_guard lock(s_.mutex);
        if (s_.ended) return;
        requests = std::exchange(s_.requests, {});
      }
      for (Request& request : requests) {
        std::visit([this](auto& what) { take(what); }, request);
      }
      for (auto& [host, order] : orders) of(host).waiting.emplace_back(std::move(order));
      bool stuck = false;
      for (Host& host : hosts_) stuck = !send_waiting(host) || stuck;
      for (auto at = seats_.begin(); at != seats_.end();) {
        if (at->second.more) write_reports(at->first, at->second);
        at = report_end(at) ? seats_.erase(at) : std::next(at);
      }
      auto event = processes_.wait(TimeLimit(stuck ? 0.005 : 0.5), s_.asked.get());
      for (; event; event = processes_.wait(TimeLimit(0), -1)) take(*event);
      const int64_t refused = processes_.strangers();
      if (refused > strangers_) s_.told.reports.refused(strangers_ = refused);
    }
  }

 private:
  Host& of(int host) { return hosts_[static_cast<size_t>(host - 1)]; }
  int number_of_host(const Host& host) const { return static_cast<int>(&host - hosts_.data()) + 1; }

  // ---- towards the hosts ----

  std::vector<std::pair<int, HostOrder>> collect_orders() {
    std::vector<std::pair<int, HostOrder>> all;
    for (auto& [place, seat] : seats_) {
      if (seat.worker == 0) continue;
      while (const auto message = seat.orders.next()) {
        std::span<const std::byte> rest = *message;
        uint64_t number = 0;
        if (take_prefix<Order>(rest) == Order::task) {
          const auto order = take_prefix<uint64_t>(rest);
          if (!begin(seat, order)) continue;
          number = order + 1;
        }
        in_pieces(*message, [&, at = place](Bytes piece, bool last) {
          all.emplace_back(seat.host,
                           SeatOrder{at, last, std::move(piece), s_.memory.size(), number});
        });
      }
      if (seat.orders.took() && seat.head().orders_wait.load() != 0) s_.told.rung();
      const uint64_t cancelled = seat.head().cancelled.load();
      if (cancelled != seat.cancelled) all.emplace_back(seat.host, SeatCancel{place, cancelled});
      seat.cancelled = cancelled;
    }
    return all;
  }

  // On its way to the worker an order counts as begun: nobody can take it back.
  static bool begin(FarSeat& seat, uint64_t order) {
    return seat.head().next.compare_exchange_strong(order, order + 1);
  }

  // False where something waits that should not.
  bool send_waiting(Host& host) {
    if (host.process == 0) host.waiting.clear();
    while (!host.waiting.empty()) {
      if (auto* const push = std::get_if<Push>(&host.waiting.front())) {
        if (!send_piece(host, *push)) return host.sent - host.written >= kUnderWay;
        if (push->at < push->place.bytes) continue;
        host.pushes.emplace_back(push->number, host.sent);
      } else if (!processes_.send(host.process,
                                  encode(std::get<HostOrder>(host.waiting.front())))) {
        return false;
      }
      host.waiting.pop_front();
    }
    return true;
  }

  bool send_piece(Host& host, Push& push) {
    if (host.sent - host.written >= kUnderWay) return false;
    if (!push.region) push.region = s_.memory.map(push.place);
    const size_t bytes = std::min(kPiece, push.place.bytes - push.at);
    const std::byte* const from = push.region.get() + push.at;
    const HostOrder order = MemoryWrite{push.place, push.at, Bytes(from, from + bytes)};
    if (!processes_.send(host.process, encode(order))) return false;
    push.at += bytes;
    host.sent += bytes;
    return true;
  }

  void take(StartRequest& what) {
    const SeatTicket& ticket = what.ticket;
    const int host = s_.host_of_seat[static_cast<size_t>(ticket.index)];
    Host& h = of(host);
    if (h.process == 0) {
      try {
        const HostSetup setup{.bell = s_.bell,
                              .workers = h.workers,
                              .threads = s_.options.threads,
                              .memory_bytes = s_.options.memory_bytes};
        h.process = processes_.start(h.name, make_call<&serve_as_host>(setup));
      } catch (const std::exception& e) {
        s_.told.reports.started(ticket, 0, 0, e.what());
        return;
      }
    }
    const size_t place = ticket.seat.offset;
    seats_.erase(place);
    seats_.emplace(place, FarSeat(s_.memory.map(ticket.seat), ticket, host));
    h.waiting.emplace_back(HostOrder(SeatHere{ticket}));
  }

  void take(KillRequest& what) {
    for (auto& [place, seat] : seats_) {
      if (seat.worker == 0 || number_of(seat.host, seat.worker) != what.worker) continue;
      of(seat.host).waiting.emplace_front(HostOrder(SeatKill{place, what.reason}));
    }
  }

  void take(HostRequest& what) {
    for (Host& host : hosts_) {
      if (what.host != 0 && what.host != number_of_host(host)) continue;
      if (host.process == 0) continue;
      if (auto* const order = std::get_if<HostOrder>(&what.what)) note_place(host, *order);
      if (what.urgent) {
        host.waiting.push_front(what.what);
      } else {
        host.waiting.push_back(what.what);
      }
    }
  }

  static void note_place(Host& host, const HostOrder& order) {
    const auto* const watch = std::get_if<MemoryWatch>(&order);
    const auto* const forget = std::get_if<MemoryForget>(&order);
    if (watch != nullptr) host.watched.insert(watch->place.offset);
    if (forget != nullptr) host.watched.erase(forget->place.offset);
  }

  // ---- from the hosts ----

  void take(const HostEvent& event) {
    const auto host = std::find_if(hosts_.begin(), hosts_.end(),
                                   [&](const Host& h) { return h.process == event.number; });
    if (host == hosts_.end()) return;
    if (event.kind == HostEvent::Kind::lost) return lose(*host, event.how);
    if (event.kind != HostEvent::Kind::message) return;
    try {
      std::visit([&](auto&& what) { take(*host, what); }, decode<HostReport>(event.content));
    } catch (const std::exception& e) {
      processes_.kill(host->process, std::string("it sent what cannot be read: ") + e.what());
    }
  }

  void lose(Host& host, const std::string& how) {
    const int number = number_of_host(host);
    host = Host{.name = host.name, .workers = host.workers};
    {
      const std::lock_guard lock(s_.mutex);
      s_.status(number).presence = 0;
      s_.changed.notify_all();
    }
    const std::string why = "host " + host.name + " is lost: " + how;
    for (auto at = seats_.begin(); at != seats_.end();) {
      FarSeat& seat = at->second;
      if (seat.host != number) {
        ++at;
      } else if (seat.worker == 0) {
        s_.told.reports.started(seat.ticket, 0, 0, why);
        at = seats_.erase(at);
      } else {
        seat.end = End{number_of(number, seat.worker), {.how = why}};
        at = report_end(at) ? seats_.erase(at) : std::next(at);
      }
    }
  }

  using Place = std::map<size_t, FarSeat>::iterator;

  // Whether it is told, and the seat nobody's.
  bool report_end(Place at) {
    FarSeat& seat = at->second;
    if (!seat.end || (seat.more && !seat.end->limit.reached())) return false;
    s_.told.printed(seat.end->number, std::move(seat.end->printed));
    s_.told.reports.ended(seat.end->number, seat.end->end);
    return true;
  }

  void take(Host& host, const HostReady& ready) {
    const std::lock_guard lock(s_.mutex);
    HostStatus& status = s_.status(number_of_host(host));
    status.presence = ++presences_;
    status.address = ready.address;
    status.cores = ready.cores;
    s_.changed.notify_all();
  }

  void take(Host& host, const SeatStarted& what) {
    const auto seat = seats_.find(what.seat);
    if (seat == seats_.end()) return;
    seat->second.worker = what.worker;
    const uint32_t number = what.worker == 0 ? 0 : number_of(number_of_host(host), what.worker);
    s_.told.reports.started(seat->second.ticket, number, static_cast<pid_t>(what.pid), what.why);
    if (number == 0) seats_.erase(seat);
    s_.ring();  // orders may wait for it
  }

  void take(Host&, const SeatReport& what) {
    const auto found = seats_.find(what.seat);
    if (found == seats_.end()) return;
    FarSeat& seat = found->second;
    seat.report.insert(seat.report.end(), what.piece.begin(), what.piece.end());
    seat.came += what.piece.size();
    if (!what.last) return;
    seat.reports.push(seat.report);
    seat.report.clear();
    write_reports(found->first, seat);
  }

  void write_reports(size_t place, FarSeat& seat) {
    seat.more = !seat.reports.flush();
    s_.told.rung();
    if (seat.more || seat.came - seat.told < kReportsAhead / 4) return;
    seat.told = seat.came;
    of(seat.host).waiting.emplace_front(HostOrder(SeatRoom{place, seat.told}));
  }

  void take(Host&, const SeatTaken& what) {
    const auto seat = seats_.find(what.seat);
    if (seat != seats_.end()) seat->second.head().messages_taken = what.bytes;
  }

  void take(Host& host, const SeatEnded& what) {
    const auto seat = seats_.find(what.seat);
    if (what.seat == no_seat) processes_.kill(host.process, what.end.how);
    if (seat == seats_.end()) return;
    seat->second.end =
        End{number_of(number_of_host(host), seat->second.worker), what.end, what.printed};
    if (report_end(seat)) seats_.erase(seat);
  }

  void take(Host& host, const MemoryWritten& what) {
    host.written += what.bytes;
    while (!host.pushes.empty() && host.pushes.front().second <= host.written) {
      const std::lock_guard lock(s_.mutex);
      s_.arrived[static_cast<size_t>(number_of_host(host) - 1)] = host.pushes.front().first;
      host.pushes.pop_front();
      s_.changed.notify_all();
    }
  }

  void take(Host& host, const MemoryPiece& what) {
    // Nobody wants it any more, or it was forgotten meanwhile.
    if (what.number == 0 ? host.watched.count(what.place.offset) == 0 : !wanted(what.number))
      return;
    const SharedRegion region = s_.memory.map(what.place);
    if (what.at > what.place.bytes || what.piece.size() > what.place.bytes - what.at) {
      throw DataError("[host] bytes outside of a region");
    }
    std::memcpy(region.get() + what.at, what.piece.data(), what.piece.size());
    if (what.number == 0 || !what.last) return;
    const std::lock_guard lock(s_.mutex);
    const auto pull = s_.pulls.find(what.number);
    if (pull != s_.pulls.end()) pull->second = true;
    s_.changed.notify_all();
  }

  bool wanted(uint64_t pull) const {
    const std::lock_guard lock(s_.mutex);
    return s_.pulls.count(pull) > 0;
  }

  HostLineState& s_;
  HostProcesses processes_;
  std::vector<Host> hosts_;
  std::map<size_t, FarSeat> seats_;  // by place
  uint64_t presences_ = 0;
  int64_t strangers_ = 0;
};

}  // namespace

std::string own_address(const ProcessPoolOptions& options) {
  if (!options.address.empty()) return options.address;
  for (const auto& host : options.hosts) {
    if (host.name.empty()) continue;
    try {
      return address_towards(host.name);
    } catch (const Error& e) {
      throw InvalidArgument(e.what(), "say where the hosts find this machine (host_address)");
    }
  }
  return {};
}

void run_host_line(HostLineState& state) { HostLine(state).run(); }

}  // namespace lockstep::detail
