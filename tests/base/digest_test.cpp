#include "lockstep/base/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The empty input's XXH3 with 128 bits and seed 0, as `xxhsum -H2 /dev/null` prints it.
TEST(Digest, IsXxh3With128Bits) {
  EXPECT_EQ(digest_of(nullptr, 0).to_string(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, TextGoesBothWays) {
  const Digest digest{0x0123456789abcdefu, 0xfedcba9876543210u};
  EXPECT_EQ(digest.to_string(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Digest::parse(digest.to_string()), digest);
  for (const char* bad :
       {"", "0123", "0123456789ABCDEFfedcba9876543210", "0123456789abcdeffedcba987654321g",
        "0123456789abcdeffedcba98765432100"}) {
    EXPECT_THROW(Digest::parse(bad), InvalidArgument) << bad;
  }
}

TEST(Digest, EveryBitCounts) {
  std::vector<unsigned char> bytes(300, 0);
  std::set<std::string> seen{digest_of(bytes.data(), bytes.size()).to_string()};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    seen.insert(digest_of(bytes.data(), bytes.size()).to_string());
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
  EXPECT_EQ(seen.size(), bytes.size() * 8 + 1);
}

TEST(Digester, ItemsOfBytesAreOneSequence) {
  std::vector<unsigned char> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 31);
  Digester digester;
  size_t done = 0;
  for (size_t step = 1; done < bytes.size(); step += 7) {
    const size_t size = std::min(step, bytes.size() - done);
    digester.bytes(bytes.data() + done, size);
    done += size;
  }
  EXPECT_EQ(digester.finish(), digest_of(bytes.data(), bytes.size()));
  EXPECT_EQ(digester.finish(), digester.finish());
}

TEST(Digester, BordersBetweenItemsAndTheirKindsCount) {
  const auto of = [](auto... items) {
    Digester digester;
    (digester.add(items), ...);
    return digester.finish();
  };
  using Text = std::string_view;
  EXPECT_NE(of(Text("ab"), Text("c")), of(Text("a"), Text("bc")));
  EXPECT_NE(of(Text("abc")), of(Text("abc"), Text("")));
  EXPECT_NE(of(uint64_t{1}, uint64_t{2}), of(uint64_t{2}, uint64_t{1}));
  EXPECT_NE(of(uint64_t{0}), of(Text(std::string_view("\0\0\0\0\0\0\0\0", 8))));
  EXPECT_NE(of(Digest{1, 2}), of(uint64_t{1}, uint64_t{2}));
  EXPECT_EQ(of(Digest{1, 2}, Text("x")), of(Digest{1, 2}, Text("x")));
}

TEST(Digester, MovesWithItsContent) {
  Digester a;
  a.add(std::string_view("x"));
  const Digest expected = a.finish();
  Digester b = std::move(a);
  EXPECT_EQ(b.finish(), expected);
  Digester c;
  c = std::move(b);
  EXPECT_EQ(c.finish(), expected);
}

}  // namespace
}  // namespace lockstep
