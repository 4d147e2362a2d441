// What runs on a host that has workers of another machine's pool: it starts them, carries orders
// and reports between their memory and the client, and keeps a mirror of the pool's memory.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "lockstep/base/cores.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/pool/host_messages.h"
#include "lockstep/parallel/pool/process_warden.h"
#include "lockstep/parallel/process/host_main.h"

namespace lockstep::detail {
namespace {

// How often it is told what has changed, seconds.
constexpr double kTell = 0.05;

class HostAgent {
 public:
  explicit HostAgent(const HostSetup& setup)
      : setup_(setup),
        bell_memory_(map(setup.bell)),
        bell_(*std::launder(reinterpret_cast<Bell*>(bell_memory_.get()))),
        warden_(memory_, pool_options(setup), reports()) {}

  [[noreturn]] void run() {
    say(HostReady{available_cores(), host_context().address()});
    warden_.begin();
    const std::thread clerk = quiet_thread([this] { serve([this] { carry_reports(); }); });
    serve([this] {
      const auto message = host_context().receive(TimeLimit(1));
      if (!message) return;
      const auto order = decode<HostOrder>(*message);
      const std::lock_guard lock(mutex_);
      std::visit([this](const auto& what) { take(what); }, order);
    });
  }

 private:
  struct Seat {
    explicit Seat(SharedRegion r)
        : region(std::move(r)),
          head(head_of(region)),
          orders(orders_of(region)),
          reports(reports_of(region)) {}
    SharedRegion region;
    SeatHead& head;
    MessageWriter orders;
    MessageReader reports;
    Bytes order;  // what has come of it
    uint32_t worker = 0;
    int64_t pid = 0;
    Descriptor diary;
    uint64_t taken = 0;               // as the client knows it
    uint64_t reported = 0, room = 0;  // bytes of reports: sent, and taken by the client
    bool broken = false;
  };
  struct Watched {
    SharedPlace place;
    SharedRegion region;
    Bytes told;
  };

  static ProcessPoolOptions pool_options(const HostSetup& setup) {
    return {.workers = setup.workers, .threads = setup.threads, .memory_bytes = setup.memory_bytes};
  }

  // Until the process ends: with a word to the client where it is an error.
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
      say(SeatEnded{no_seat, {.how = why}, ""});
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    } catch (const std::exception&) {
      // Then the client sees that it has ended.
    }
    _exit(1);
  }

  template <class Report>
  static void say(const Report& report) {
    host_context().send(encode(HostReport(report)));
  }

  SharedRegion map(const SharedPlace& place) {
    memory_.cover(place);
    return memory_.map(place);
  }

  // A region that is written or read again and again.
  const SharedRegion& mapped(const SharedPlace& place) {
    auto& [size, region] = mapped_[place.offset];
    if (!region || size < place.bytes) {
      region = map(place);
      size = place.bytes;
    }
    return region;
  }

  // ---- what the client wants, with the mutex held ----

  void take(const SeatHere& what) {
    const size_t place = what.ticket.seat.offset;
    seats_.erase(place);
    seats_.emplace(place, map(what.ticket.seat));
    warden_.start(what.ticket);
  }

  void take(const SeatOrder& what) {
    Seat* const seat = seat_at(what.seat);
    if (seat == nullptr) return;
    seat->order.insert(seat->order.end(), what.piece.begin(), what.piece.end());
    if (!what.last) return;
    memory_.cover({0, what.memory});
    // The next one that may be begun; the client may have taken back some before it.
    if (what.order > 0) seat->head.next = what.order - 1;
    seat->orders.push(seat->order);
    seat->order.clear();
    write_orders(*seat);
  }

  void take(const SeatCancel& what) {
    Seat* const seat = seat_at(what.seat);
    if (seat == nullptr) return;
    seat->head.cancelled = what.cancelled;
    seat->head.bell.ring();
  }

  void take(const SeatRoom& what) {
    Seat* const seat = seat_at(what.seat);
    if (seat == nullptr) return;
    seat->room = std::max(seat->room, what.bytes);
    bell_.ring();
  }

  void take(const SeatKill& what) {
    Seat* const seat = seat_at(what.seat);
    if (seat != nullptr && seat->worker != 0) warden_.kill(seat->worker, what.reason);
  }

  void take(const MemoryWrite& what) {
    const SharedRegion& region = mapped(what.place);
    check(what.place, what.at, what.piece.size());
    std::memcpy(region.get() + what.at, what.piece.data(), what.piece.size());
    say(MemoryWritten{what.piece.size()});
  }

  void take(const MemoryRead& what) {
    const SharedRegion region = map(what.place);
    size_t at = 0;
    in_pieces({region.get(), what.place.bytes}, [&](Bytes piece, bool last) {
      const size_t bytes = piece.size();
      say(MemoryPiece{what.place, at, std::move(piece), what.number, last});
      at += bytes;
    });
  }

  void take(const MemoryWatch& what) {
    watched_[what.place.offset] = {what.place, map(what.place), {}};
  }

  void take(const MemoryForget& what) {
    watched_.erase(what.place.offset);
    mapped_.erase(what.place.offset);
    memory_.cover(what.place);
    memory_.free(what.place);
  }

  void take(const GroupEnd& what) { LocalGroup::abort(mapped(what.place)); }

  static void check(const SharedPlace& place, size_t at, size_t bytes) {
    if (at > place.bytes || bytes > place.bytes - at) {
      throw DataError("[host] bytes outside of a region");
    }
  }

  Seat* seat_at(size_t place) {
    const auto found = seats_.find(place);
    return found == seats_.end() ? nullptr : &found->second;
  }

  static void write_orders(Seat& seat) {
    if (!seat.orders.flush()) {
      seat.head.orders_wait = 1;
      // The worker may have made room before it could see that.
      if (seat.orders.flush()) seat.head.orders_wait = 0;
    }
    seat.head.bell.ring();
  }

  // ---- what workers say ----

  void carry_reports() {
    const uint32_t seen = bell_.rings();
    double left = 0;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [place, seat] : seats_) carry_reports(place, seat);
      if (tell_.reached()) tell_changes();
      left = tell_.left();
    }
    bell_.wait(seen, TimeLimit(std::max(left, 1e-3)));
  }

  // `all`: of a worker that has ended, whose ring is all there is.
  void carry_reports(size_t place, Seat& seat, bool all = false) {
    if (seat.broken) return;
    if (seat.head.orders_wait.exchange(0) != 0) write_orders(seat);
    try {
      while (all || seat.reported - seat.room < kReportsAhead) {
        const auto message = seat.reports.next();
        if (!message) break;
        seat.reported += message->size();
        std::span<const std::byte> rest = *message;
        if (take_prefix<Report>(rest) == Report::ready) {
          const std::string path = "/proc/" + std::to_string(seat.pid) + "/fd/" +
                                   std::to_string(decode<ReadyNote>(rest).diary);
          seat.diary = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
        }
        in_pieces(*message, [&](Bytes piece, bool last) {
          say(SeatReport{place, last, std::move(piece)});
        });
      }
      if (seat.reports.took()) seat.head.bell.ring();
    } catch (const DataError& e) {
      seat.broken = true;
      warden_.kill(seat.worker, std::string("sent what cannot be read (") + e.what() + ")");
    }
  }

  void tell_changes() {
    tell_ = TimeLimit(kTell);
    for (auto& [place, seat] : seats_) {
      const uint64_t taken = seat.head.messages_taken.load();
      if (taken != seat.taken) say(SeatTaken{place, taken});
      seat.taken = taken;
      if (seat.diary) forget_diary(seat.diary.get());
    }
    for (auto& [place, w] : watched_) {
      const Bytes now = read_words(w.region.get(), w.place.bytes);
      if (now == w.told) continue;
      say(MemoryPiece{w.place, 0, now, 0, true});
      w.told = now;
    }
  }

  // While others write there.
  static Bytes read_words(std::byte* from, size_t bytes) {
    Bytes copy(bytes);
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
      const uint64_t word = reinterpret_cast<std::atomic<uint64_t>*>(from + at)->load();
      std::memcpy(copy.data() + at, &word, sizeof word);
    }
    return copy;
  }

  WardenReports reports() {
    return {
        .started =
            [this](const SeatTicket& ticket, uint32_t worker, pid_t pid, const std::string& why) {
              const std::lock_guard lock(mutex_);
              Seat* const seat = seat_at(ticket.seat.offset);
              if (seat == nullptr) return;
              seat->worker = worker;
              seat->pid = pid;
              say(SeatStarted{ticket.seat.offset, worker, pid, why});
              if (worker == 0) seats_.erase(ticket.seat.offset);
              bell_.ring();
            },
        .ended =
            [this](uint32_t worker, const WorkerEnd& end) {
              const std::lock_guard lock(mutex_);
              for (auto at = seats_.begin(); at != seats_.end(); ++at) {
                if (at->second.worker != worker) continue;
                carry_reports(at->first, at->second, true);
                tell_changes();
                say(SeatEnded{at->first, end, read_diary(at->second.diary.get())});
                seats_.erase(at);
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
  std::mutex mutex_;
  std::map<size_t, Seat> seats_;  // by place
  std::map<size_t, Watched> watched_;
  std::map<size_t, std::pair<size_t, SharedRegion>> mapped_;
  TimeLimit tell_{kTell};
  ProcessWarden warden_;
};

}  // namespace

void serve_as_host(HostSetup setup) { HostAgent(setup).run(); }

}  // namespace lockstep::detail
