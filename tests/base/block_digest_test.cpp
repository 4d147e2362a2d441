#include "lockstep/base/block_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

namespace lockstep {
namespace {

using Arrays = std::vector<std::vector<std::byte>>;

Arrays arrays_of(std::span<const size_t> sizes) {
  Arrays arrays;
  uint32_t number = 1;
  for (const size_t size : sizes) {
    auto& bytes = arrays.emplace_back(size);
    for (std::byte& byte : bytes) {
      number = number * 1664525 + 1013904223;
      byte = static_cast<std::byte>(number >> 24);
    }
  }
  return arrays;
}

Digest digest_at_once(const Arrays& arrays) {
  Digester digester;
  for (const auto& bytes : arrays) digester.bytes(bytes.data(), bytes.size());
  return digester.finish();
}

// In chunks of `chunk` bytes from the last to the first, without every `left_out`-th.
Digest digest_by_chunks(BlockDigest& digest, const Arrays& arrays, size_t chunk, size_t left_out) {
  std::vector<std::span<const std::byte>> spans(arrays.begin(), arrays.end());
  digest.begin(spans);
  for (size_t a = arrays.size(); a-- > 0;) {
    const size_t chunks = (arrays[a].size() + chunk - 1) / chunk;
    for (size_t i = chunks; i-- > 0;) {
      if (left_out > 0 && i % left_out == 0) continue;
      digest.add(a, i * chunk, std::min(chunk, arrays[a].size() - i * chunk));
    }
  }
  return digest.finish();
}

TEST(BlockDigest, IsThatOfAllBytesInOrder) {
  BlockDigest digest;  // used again and again
  const std::vector<std::vector<size_t>> all{{},
                                             {0},
                                             {1},
                                             {240, 1},
                                             {16384},
                                             {16385},
                                             {16383},
                                             {65536},
                                             {65537, 3},
                                             {40960, 40960},
                                             {40000, 40000},
                                             {70004, 70004, 70004},
                                             {100000},
                                             {1023, 99999},
                                             {4, 20000, 8},
                                             {17000, 0, 50},
                                             {33000, 33000},
                                             {131072, 131072, 131072}};
  for (const auto& sizes : all) {
    const Arrays arrays = arrays_of(sizes);
    const Digest expected = digest_at_once(arrays);
    for (const size_t chunk : {1000u, 1024u, 4096u, 5000u, 16384u, 1u << 20}) {
      for (const size_t left_out : {0u, 1u, 2u, 3u}) {
        EXPECT_EQ(digest_by_chunks(digest, arrays, chunk, left_out), expected)
            << sizes.size() << " arrays, the first of " << (sizes.empty() ? 0 : sizes[0])
            << " bytes, chunks of " << chunk << ", without every " << left_out;
      }
    }
  }
}

TEST(BlockDigest, EveryLengthOfTheLastBlock) {
  BlockDigest digest;
  for (size_t size = 20 * BlockDigest::kBlock; size <= 21 * BlockDigest::kBlock; ++size) {
    const std::vector<size_t> sizes{size};
    const Arrays arrays = arrays_of(sizes);
    ASSERT_EQ(digest_by_chunks(digest, arrays, 4096, 0), digest_at_once(arrays)) << size;
  }
}

}  // namespace
}  // namespace lockstep
