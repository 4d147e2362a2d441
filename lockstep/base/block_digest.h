// The digest of a long sequence of bytes whose blocks are hashed in any order, by several threads,
// while they are in the cache. XXH3 adds up the blocks' stripes independently of each other
// (Collet, xxHash, specification of XXH3, section "larger inputs"), so 64 bytes of each block of
// 1,024 suffice to finish the digest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/digest.h"

namespace lockstep {

// One thread calls begin() and finish(). In between, several threads may call add() for different
// bytes.
class BlockDigest {
 public:
  static constexpr size_t kBlock = 1024;

  // Begins the digest of `arrays` one after another. Their memory must stay valid until finish().
  void begin(std::span<const std::span<const std::byte>> arrays);
  // Hashes those blocks of the sequence that lie within bytes [first, first + size) of an array.
  // They must not change afterwards.
  void add(size_t array, size_t first, size_t size);
  // Hashes all other blocks. The result is that of Digester::bytes() of the arrays in order.
  Digest finish();

 private:
  using Sums = std::array<uint64_t, 8>;
  struct Array {
    std::span<const std::byte> bytes;
    size_t first = 0;  // in the sequence
  };
  void copy(size_t first, size_t size, std::byte* to) const;

  std::vector<Array> arrays_;
  size_t size_ = 0;
  std::vector<Sums> sums_;      // by block, without the last
  std::vector<uint8_t> added_;  // by block
};

}  // namespace lockstep
