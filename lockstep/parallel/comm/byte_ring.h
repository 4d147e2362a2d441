// Bytes between two threads, of one process or of two that share memory, without a lock: what was
// written is there for the reader whatever becomes of the writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/process/serialize.h"

namespace lockstep {

// Wakes whoever waits for something to change, without a system call where nobody sleeps. Lies in
// memory that is zeros at first. Thread-safe, between processes too.
class Bell {
 public:
  void ring();
  // To be asked before looking whether there is something to do.
  uint32_t rings() const { return rings_.load(); }
  // Sleeps until it rings again after `seen` was read, or until the limit. With `spin` it looks
  // again and again for a moment before: where the waiting thread has a core of its own.
  void wait(uint32_t seen, const TimeLimit& limit, bool spin = false);

 private:
  std::atomic<uint32_t> rings_, sleepers_;  // at most too many: who dies asleep stays counted
};

// A ring of bytes, for one writer and one reader, each one thread at a time. A view.
class ByteRing {
 public:
  // Of the memory that a ring of `capacity` takes.
  static size_t bytes(size_t capacity);
  // `memory`: zeros at first, aligned to cache lines.
  ByteRing(std::byte* memory, size_t capacity);

  // Writes as many bytes as there is room for, which appear to the reader at once; how many.
  // Throws DataError where the memory is damaged; so does read().
  size_t write(std::span<const std::byte> from);
  size_t writable() const;
  // Reads as many as there are, at most those of `to`; how many.
  size_t read(std::span<std::byte> to);

 private:
  size_t filled() const;

  struct Head;
  Head* head_;
  std::byte* data_;
  size_t capacity_;
};

// Bytes that no message passes.
inline constexpr size_t most_message_bytes = size_t{1} << 32;

// Messages through a ring, however long: one is there when its last byte is. One thread at a time.
class MessageWriter {
 public:
  explicit MessageWriter(ByteRing ring) : ring_(ring) {}
  // Takes a message behind those that wait for room, and writes what it can.
  void push(std::span<const std::byte> message);
  // Writes what it can; true when nothing waits any more.
  bool flush();

 private:
  ByteRing ring_;
  Bytes waiting_;
  size_t written_ = 0;  // of those
};

class MessageReader {
 public:
  explicit MessageReader(ByteRing ring) : ring_(ring) {}
  // The next message that is there as a whole. Throws DataError for one longer than `most` bytes.
  std::optional<Bytes> next(size_t most = most_message_bytes);
  // Whether bytes were taken since it was last asked, so that there is room for others.
  bool took();

 private:
  ByteRing ring_;
  std::byte length_[sizeof(uint64_t)] = {};
  size_t have_ = 0;  // bytes of length and message
  Bytes message_;
  bool took_ = false;
};

}  // namespace lockstep
