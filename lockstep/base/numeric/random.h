// Counter-based random numbers: each value is a function of a key and a position, and does not
// depend on the calling thread or on the order of calls. Philox 4x32-10 (Salmon, Moraes, Dror,
// Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). All functions are pure and
// thread-safe. Only + - * /, sqrt and explicit fma on doubles are used, all correctly rounded, so
// every processor gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

// The purpose of a random number. Each purpose has its own streams.
enum class RandomUse : uint32_t {
  initialize = 1,
  dropout = 2,
  augment = 3,
  shuffle = 4,
  split = 5,
  digits = 6,
  user = 7,
  noise = 8,
  task = 9,
  draw = 10,
};

// The key of a stream: a seed, a purpose, and up to three numbers for its position in the run
// (epoch, iteration, layer, index in the listing, ...), as the caller documents.
struct RandomKey {
  uint64_t seed = 0;
  RandomUse use = RandomUse::user;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
};

// Ten rounds of Philox 4x32.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Random access to the stream of a key. Cheap to construct; immutable.
class RandomStream {
 public:
  explicit RandomStream(const RandomKey& key);

  // Block number `block` of the stream: four independent 32-bit words.
  std::array<uint32_t, 4> block(uint64_t block) const;
  // Writes the words of `count` consecutive blocks from `first` on. Several times as fast as
  // block().
  void blocks(uint64_t first, size_t count, uint32_t* words) const;
  // 32 random bits at position `i`.
  uint32_t bits(uint64_t i) const;
  // Uniform in [0, 1), 53 bits, at position `i`. Its positions are independent of those of bits().
  double uniform(uint64_t i) const;
  // Uniform in {0, ..., n - 1}, unbiased to within 2^-64 n. Throws InvalidArgument if n == 0.
  uint64_t below(uint64_t i, uint64_t n) const;
  // Uniform whole number in [low, high], both ends included. Throws InvalidArgument if low > high.
  int64_t between(uint64_t i, int64_t low, int64_t high) const;
  // Standard normal (Box and Muller 1958) at position `i`.
  double normal(uint64_t i) const;

 private:
  std::array<uint32_t, 2> key_{};
  std::array<uint32_t, 2> counter_high_{};
};

// A permutation of {0, ..., n - 1} (Fisher-Yates) that depends only on the key. Throws
// InvalidArgument if n < 0.
std::vector<int64_t> random_permutation(const RandomKey& key, int64_t n);

// The position of a computation in a training run. The random numbers of ops (dropout) depend on
// it.
struct RandomContext {
  uint64_t seed = 0;
  uint64_t iteration = 0;
  int64_t first_row = 0;  // position in the mini-batch of the first observation
  friend bool operator==(const RandomContext&, const RandomContext&) = default;
};

// A 64-bit number from text, for keys that contain text (a layer's name).
uint64_t key_from_text(std::string_view text);

}  // namespace lockstep
