#include "lockstep/parallel/messages/byte_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/os/shared_memory.h"

namespace lockstep {
namespace {

constexpr size_t kCapacity = 1000;

struct RingMemory {
  SharedMemory arena{"lockstep-test"};
  SharedRegion region = arena.map(arena.reserve(ByteRing::bytes(kCapacity)));
  ByteRing ring() const { return ByteRing(region.get(), kCapacity); }
};

Bytes message_of(size_t bytes, unsigned salt) {
  Bytes message(bytes);
  for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>(i * 7 + salt);
  return message;
}

TEST(ByteRing, TakesWhatItHasRoomFor) {
  const RingMemory memory;
  ByteRing ring = memory.ring();
  EXPECT_EQ(ring.writable(), kCapacity);
  EXPECT_EQ(ring.write(message_of(700, 1)), 700u);
  EXPECT_EQ(ring.write(message_of(700, 2)), 300u);
  EXPECT_EQ(ring.write(message_of(1, 2)), 0u);
  Bytes to(650);
  EXPECT_EQ(ring.read(to), 650u);
  const Bytes whole = message_of(700, 1);
  EXPECT_EQ(to, Bytes(whole.begin(), whole.begin() + 650));
  // Wraps around the end of the ring.
  EXPECT_EQ(ring.write(message_of(500, 3)), 500u);
  to.resize(2000);
  EXPECT_EQ(ring.read(to), 850u);
  EXPECT_EQ(ring.read(to), 0u);
  EXPECT_EQ(to[849], message_of(500, 3)[499]);
}

TEST(ByteRing, MessagesOfAnyLengthComeThrough) {
  const RingMemory memory;
  Bell room{}, data{};
  std::thread writer([&] {
    MessageWriter out(memory.ring());
    std::mt19937 random(1);
    for (unsigned i = 0; i < 500; ++i) {
      out.push(message_of(random() % 3000, i));
      for (;;) {
        const uint32_t seen = room.rings();
        const bool done = out.flush();
        data.ring();
        if (done) break;
        room.wait(seen, TimeLimit(10));
      }
    }
  });
  MessageReader in(memory.ring());
  std::mt19937 random(1);
  for (unsigned i = 0; i < 500; ++i) {
    for (;;) {
      const uint32_t seen = data.rings();
      const auto message = in.next(1 << 20);
      if (in.took()) room.ring();
      if (message) {
        ASSERT_EQ(*message, message_of(random() % 3000, i));
        break;
      }
      data.wait(seen, TimeLimit(10), true);
    }
  }
  writer.join();
  EXPECT_FALSE(in.next(1 << 20));
}

TEST(ByteRing, WhatWasWrittenInPartIsNotAMessage) {
  const RingMemory memory;
  const uint64_t length = 100;
  Bytes bytes(sizeof length + 99);
  std::memcpy(bytes.data(), &length, sizeof length);
  ByteRing ring = memory.ring();
  ring.write(bytes);
  MessageReader in(memory.ring());
  EXPECT_FALSE(in.next(1000));
  ring.write(Bytes(1));
  EXPECT_EQ(in.next(1000)->size(), 100u);
}

TEST(ByteRing, DamageIsFound) {
  const RingMemory memory;
  MessageWriter(memory.ring()).push(Bytes(500));
  EXPECT_THROW(MessageReader(memory.ring()).next(499), DataError);
  const uint64_t far = uint64_t{1} << 40;
  std::memcpy(memory.region.get(), &far, sizeof far);
  EXPECT_THROW(memory.ring().writable(), DataError);
  Bytes to(10);
  EXPECT_THROW(memory.ring().read(to), DataError);
}

}  // namespace
}  // namespace lockstep
