// What a pool and its hosts say to each other. A seat is called by where it lies in the memory that
// hosts mirror; what is long travels in pieces.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/shared_memory.h"
#include "lockstep/parallel/pool/process_seat.h"
#include "lockstep/parallel/process/worker_end.h"

namespace lockstep::detail {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t no_seat = ~size_t{0};
// Bytes of a worker's reports, whole messages, that its host sends ahead of what the client has
// taken: a worker waits for a client that is slow, here and on other hosts alike.
constexpr uint64_t kReportsAhead = 4 * kPiece;

// ---- to a host ----

// A worker shall serve it.
struct SeatHere {
  SeatTicket ticket;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ticket);
  }
};

// A piece of an order, `last` the last one.
struct SeatOrder {
  size_t seat = 0;
  bool last = true;
  Bytes piece;
  size_t memory = 0;   // bytes of the pool's, in which places that it names may lie
  uint64_t order = 0;  // of a task: TaskOrder::order + 1

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, last, piece, memory, order);
  }
};

// SeatHead::cancelled.
struct SeatCancel {
  size_t seat = 0;
  uint64_t cancelled = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, cancelled);
  }
};

// How many bytes of the seat's reports the client has taken so far.
struct SeatRoom {
  size_t seat = 0;
  uint64_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, bytes);
  }
};

struct SeatKill {
  size_t seat = 0;
  std::string reason;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, reason);
  }
};

// Bytes of the memory; answered by MemoryWritten.
struct MemoryWrite {
  SharedPlace place;
  size_t at = 0;  // within it
  Bytes piece;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place, at, piece);
  }
};

// Answered by MemoryPieces with this number.
struct MemoryRead {
  SharedPlace place;
  uint64_t number = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place, number);
  }
};

// What changes there is told now and then, and before the end of a worker is, until it is
// forgotten.
struct MemoryWatch {
  SharedPlace place;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place);
  }
};

struct MemoryForget {
  SharedPlace place;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place);
  }
};

// A LocalGroup lies there: it is over.
struct GroupEnd {
  SharedPlace place;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place);
  }
};

using HostOrder = std::variant<SeatHere, SeatOrder, SeatCancel, SeatRoom, SeatKill, MemoryWrite,
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

// A process serves the seat; or none does, and why.
struct SeatStarted {
  size_t seat = 0;
  uint32_t worker = 0;
  int64_t pid = 0;
  std::string why;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, worker, pid, why);
  }
};

struct SeatReport {
  size_t seat = 0;
  bool last = true;
  Bytes piece;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, last, piece);
  }
};

// SeatHead::messages_taken.
struct SeatTaken {
  size_t seat = 0;
  uint64_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, bytes);
  }
};

struct SeatEnded {
  size_t seat = 0;  // no_seat: the host itself cannot go on
  WorkerEnd end;
  std::string printed;  // what it has printed last

  template <class Archive>
  void serialize(Archive& archive) {
    archive(seat, end, printed);
  }
};

struct MemoryWritten {
  size_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(bytes);
  }
};

struct MemoryPiece {
  SharedPlace place;
  size_t at = 0;
  Bytes piece;
  uint64_t number = 0;  // of the MemoryRead; 0: it is watched
  bool last = true;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place, at, piece, number, last);
  }
};

using HostReport = std::variant<HostReady, SeatStarted, SeatReport, SeatTaken, SeatEnded,
                                MemoryWritten, MemoryPiece>;

// What a process needs to stand for a pool on its host.
struct HostSetup {
  SharedPlace bell;
  int workers = 1, threads = 1;  // there
  uint64_t memory_bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(bell, workers, threads, memory_bytes);
  }
};

// Runs a pool's workers on this host for as long as the client wants.
void serve_as_host(HostSetup setup);

// Hands a message over piece by piece: use(piece, whether it is the last).
template <class Use>
void in_pieces(std::span<const std::byte> message, Use use) {
  for (size_t at = 0; at == 0 || at < message.size(); at += kPiece) {
    const auto piece = message.subspan(at, std::min(kPiece, message.size() - at));
    use(Bytes(piece.begin(), piece.end()), at + kPiece >= message.size());
  }
}

}  // namespace lockstep::detail
