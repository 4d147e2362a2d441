// Lock-free byte transport between two threads, of one process or of two processes that share
// memory. The reader gets everything that was written, even when the writer's process has died.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/base/bytes.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

// Wakes threads that wait for a change. Makes no system call when no thread sleeps. Lies in memory
// that is initially zero. Thread-safe, also between processes.
class Bell {
 public:
  void ring();
  // Read this before checking for work.
  uint32_t rings() const { return rings_.load(); }
  // Sleeps until ring() is called after `seen` was read, or until the limit. With `spin` it polls
  // for a moment before it sleeps, for waiting threads that have a core to themselves.
  void wait(uint32_t seen, const TimeLimit& limit, bool spin = false);

 private:
  std::atomic<uint32_t> rings_, sleepers_;  // sleepers_ may be too high: dead sleepers stay counted
};

// A ring of bytes with one writer and one reader, each one thread at a time. A view.
class ByteRing {
 public:
  // Memory size of a ring of `capacity` bytes.
  static size_t bytes(size_t capacity);
  // `memory`: initially zero, aligned to cache lines.
  ByteRing(std::byte* memory, size_t capacity);

  // Writes as many bytes as fit and returns their number. They become visible to the reader at
  // once. Throws DataError if the memory is damaged; so does read().
  size_t write(std::span<const std::byte> from);
  size_t writable() const;
  // Reads the available bytes, at most to.size(), and returns their number.
  size_t read(std::span<std::byte> to);

 private:
  size_t filled() const;

  struct Head;
  Head* head_;
  std::byte* data_;
  size_t capacity_;
};

// Upper limit for the length of any message.
inline constexpr size_t most_message_bytes = size_t{1} << 32;

// Messages of any length through a ring. A message is available once its last byte has arrived. One
// thread at a time.
class MessageWriter {
 public:
  explicit MessageWriter(ByteRing ring) : ring_(ring) {}
  // Appends a message to those that wait for room, and writes as much as fits.
  void push(std::span<const std::byte> message);
  // Writes as much as fits. True when nothing is waiting any more.
  bool flush();

 private:
  ByteRing ring_;
  Bytes waiting_;
  size_t written_ = 0;  // bytes of waiting_
};

class MessageReader {
 public:
  explicit MessageReader(ByteRing ring) : ring_(ring) {}
  // The next complete message. Throws DataError for a message longer than `most` bytes.
  std::optional<Bytes> next(size_t most = most_message_bytes);
  // Whether bytes were taken since the last call, so that the ring has room again.
  bool took();

 private:
  ByteRing ring_;
  std::byte length_[sizeof(uint64_t)] = {};
  size_t have_ = 0;  // bytes of length_ and message_ received so far
  Bytes message_;
  bool took_ = false;
};

}  // namespace lockstep
