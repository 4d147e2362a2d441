#include "lockstep/parallel/messages/byte_ring.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/threads/futex.h"
#include "lockstep/base/threads/pause.h"

namespace lockstep {
namespace {

// About the time that a thread needs to fall asleep and to be woken again.
constexpr std::chrono::microseconds kSpinForBytes{50};
// Capacity that a writer keeps for the next message.
constexpr size_t kKept = size_t{1} << 20;

}  // namespace

void Bell::ring() {
  rings_.fetch_add(1);
  if (sleepers_.load() > 0) wake_all(rings_);
}

void Bell::wait(uint32_t seen, const TimeLimit& limit, bool spin) {
  const auto rung = [&] { return rings_.load() != seen; };
  if (rung() || (spin && spin_until(rung, kSpinForBytes))) return;
  sleepers_.fetch_add(1);
  wait_while(rings_, seen, limit);
  sleepers_.fetch_sub(1);
}

// Byte counters that only grow.
struct ByteRing::Head {
  alignas(cache_line) std::atomic<uint64_t> written;
  alignas(cache_line) std::atomic<uint64_t> read;
};

size_t ByteRing::bytes(size_t capacity) { return sizeof(Head) + round_up(capacity); }

ByteRing::ByteRing(std::byte* memory, size_t capacity)
    : head_(std::launder(reinterpret_cast<Head*>(memory))),
      data_(memory + sizeof(Head)),
      capacity_(capacity) {}

size_t ByteRing::filled() const {
  const auto bytes = static_cast<size_t>(head_->written.load() - head_->read.load());
  // A process that shares the memory may have written anywhere in it.
  if (bytes > capacity_) throw DataError("[ring] its counters are damaged");
  return bytes;
}

size_t ByteRing::writable() const { return capacity_ - filled(); }

size_t ByteRing::write(std::span<const std::byte> from) {
  const uint64_t written = head_->written.load(std::memory_order_relaxed);
  const size_t n = std::min(from.size(), writable());
  const size_t at = static_cast<size_t>(written % capacity_), first = std::min(n, capacity_ - at);
  if (first > 0) std::memcpy(data_ + at, from.data(), first);
  if (n > first) std::memcpy(data_, from.data() + first, n - first);
  head_->written.store(written + n);
  return n;
}

size_t ByteRing::read(std::span<std::byte> to) {
  const uint64_t read = head_->read.load(std::memory_order_relaxed);
  const size_t n = std::min(to.size(), filled());
  const size_t at = static_cast<size_t>(read % capacity_), first = std::min(n, capacity_ - at);
  if (first > 0) std::memcpy(to.data(), data_ + at, first);
  if (n > first) std::memcpy(to.data() + first, data_, n - first);
  head_->read.store(read + n);
  return n;
}

void MessageWriter::push(std::span<const std::byte> message) {
  const uint64_t length = message.size();
  const size_t before = waiting_.size();
  waiting_.resize(before + sizeof length + message.size());
  std::memcpy(waiting_.data() + before, &length, sizeof length);
  if (length > 0) {
    std::memcpy(waiting_.data() + before + sizeof length, message.data(), message.size());
  }
  flush();
}

bool MessageWriter::flush() {
  if (written_ < waiting_.size()) written_ += ring_.write(std::span(waiting_).subspan(written_));
  if (written_ < waiting_.size()) return false;
  waiting_.clear();
  if (waiting_.capacity() > kKept) waiting_.shrink_to_fit();
  written_ = 0;
  return true;
}

std::optional<Bytes> MessageReader::next(size_t most) {
  if (have_ < sizeof length_) {
    const size_t n = ring_.read(std::span(length_).subspan(have_));
    took_ |= n > 0;
    have_ += n;
    if (have_ < sizeof length_) return std::nullopt;
    uint64_t length = 0;
    std::memcpy(&length, length_, sizeof length);
    if (length > most) {
      throw DataError("[message] it has " + std::to_string(length) + " bytes, " +
                      std::to_string(most) + " are allowed");
    }
    message_.resize(length);
  }
  const size_t n = ring_.read(std::span(message_).subspan(have_ - sizeof length_));
  took_ |= n > 0;
  have_ += n;
  if (have_ < sizeof length_ + message_.size()) return std::nullopt;
  have_ = 0;
  return std::move(message_);
}

bool MessageReader::took() { return std::exchange(took_, false); }

}  // namespace lockstep
