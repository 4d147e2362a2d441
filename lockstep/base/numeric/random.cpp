#include "lockstep/base/numeric/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/angle.h"
#include "lockstep/base/numeric/clones.h"

namespace lockstep {
namespace {

// Block ranges 2^62 apart, so that uniform(), below() and normal() share no bits with each other or
// with bits() at the same position.
constexpr uint64_t uniform_blocks = uint64_t{1} << 62;
constexpr uint64_t below_blocks = uint64_t{2} << 62;
constexpr uint64_t normal_blocks = uint64_t{3} << 62;

constexpr uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t high_word(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
constexpr uint64_t join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

// Below, every product that is added to a sum uses an explicit fma. The compiler has nothing left
// to contract, so the bits do not depend on -ffp-contract.

// Natural logarithm of a normal number x > 0, to about one unit in the last place. Reduction and
// coefficients: FDLIBM 5.3, e_log.c (Sun Microsystems).
double log_of(double x) {
  constexpr double ln2_high = 6.93147180369123816490e-01;  // its low 21 bits are zero
  constexpr double ln2_low = 1.90821492927058770002e-10;
  constexpr double c1 = 6.666666666666735130e-01, c2 = 3.999999999940941908e-01;
  constexpr double c3 = 2.857142874366239149e-01, c4 = 2.222219843214978396e-01;
  constexpr double c5 = 1.818357216161805012e-01, c6 = 1.531383769920937332e-01;
  constexpr double c7 = 1.479819860511658591e-01;
  constexpr uint64_t sqrt_half = 0x3FE6A09E667F3BCDu;  // bits of sqrt(1/2)

  // x = 2^exponent (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2).
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t exponent = static_cast<int64_t>(bits - sqrt_half) >> 52;
  const double f = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52)) - 1.0;

  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = std::fma(z, c7, c6);
  p = std::fma(z, p, c5);
  p = std::fma(z, p, c4);
  p = std::fma(z, p, c3);
  p = std::fma(z, p, c2);
  p = std::fma(z, p, c1);
  const double half_f = 0.5 * f;
  const double k = static_cast<double>(exponent);
  const double inner = std::fma(half_f, f, z * p);              // f^2/2 + R
  const double correction = std::fma(s, inner, k * ln2_low);    // s (f^2/2 + R) + k ln2_low
  const double below_f = std::fma(half_f, f, -correction) - f;  // f^2/2 - correction - f
  return std::fma(k, ln2_high, -below_f);
}

// Sine and cosine of 2 pi k / 2^53. The quarter turns are subtracted exactly, in integers.
SineAndCosine sine_and_cosine_of_turn(uint64_t k) {
  constexpr double half_pi = 1.57079632679489661923;
  const uint64_t quarter = (k + (uint64_t{1} << 50)) >> 51;
  const auto rest = static_cast<int64_t>(k) - static_cast<int64_t>(quarter << 51);
  return turned_by_quarters(
      sine_and_cosine_near_zero(static_cast<double>(rest) * 0x1p-51 * half_pi),
      static_cast<int64_t>(quarter));
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {high_word(p1) ^ counter[1] ^ key[0], low_word(p1),
               high_word(p0) ^ counter[3] ^ key[1], low_word(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

namespace {

// Number of Philox blocks that are computed side by side.
constexpr size_t kSide = 64;

LOCKSTEP_CLONES void philox_side_by_side(uint64_t first, std::array<uint32_t, 2> counter_high,
                                         std::array<uint32_t, 2> key, uint32_t* words) {
  uint32_t c0[kSide], c1[kSide], c2[kSide], c3[kSide];
  for (size_t i = 0; i < kSide; ++i) {
    c0[i] = low_word(first + i);
    c1[i] = high_word(first + i);
    c2[i] = counter_high[0];
    c3[i] = counter_high[1];
  }
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kSide; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0[i];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2[i];
      c0[i] = high_word(p1) ^ c1[i] ^ key[0];
      c1[i] = low_word(p1);
      c2[i] = high_word(p0) ^ c3[i] ^ key[1];
      c3[i] = low_word(p0);
    }
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  for (size_t i = 0; i < kSide; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

}  // namespace

// Applies Philox twice, over all nine words. Each application is a bijection of its counter, so
// keys that differ only in (use, a) or only in (b, c) never give the same stream.
RandomStream::RandomStream(const RandomKey& key) {
  const auto x =
      philox4x32({static_cast<uint32_t>(key.use), 0x4C4F434Bu, low_word(key.a), high_word(key.a)},
                 {low_word(key.seed), high_word(key.seed)});
  const auto y = philox4x32(
      {low_word(key.b) ^ x[2], high_word(key.b) ^ x[3], low_word(key.c), high_word(key.c)},
      {x[0], x[1]});
  key_ = {y[0], y[1]};
  counter_high_ = {y[2], y[3]};
}

std::array<uint32_t, 4> RandomStream::block(uint64_t block) const {
  return philox4x32({low_word(block), high_word(block), counter_high_[0], counter_high_[1]}, key_);
}

void RandomStream::blocks(uint64_t first, size_t count, uint32_t* words) const {
  size_t done = 0;
  for (; done + kSide <= count; done += kSide) {
    philox_side_by_side(first + done, counter_high_, key_, words + 4 * done);
  }
  if (count - done >= kSide / 8) {  // faster than block by block
    uint32_t rest[4 * kSide];
    philox_side_by_side(first + done, counter_high_, key_, rest);
    std::copy_n(rest, 4 * (count - done), words + 4 * done);
    return;
  }
  for (; done < count; ++done) {
    const auto own = block(first + done);
    std::copy(own.begin(), own.end(), words + 4 * done);
  }
}

uint32_t RandomStream::bits(uint64_t i) const { return block(i / 4)[i % 4]; }

double RandomStream::uniform(uint64_t i) const {
  const auto words = block(uniform_blocks ^ (i / 2));
  const uint64_t r = i % 2 == 0 ? join(words[0], words[1]) : join(words[2], words[3]);
  return static_cast<double>(r >> 11) * 0x1p-53;
}

uint64_t RandomStream::below(uint64_t i, uint64_t n) const {
  if (n == 0) throw InvalidArgument("[random] below() needs n >= 1, received 0");
  const auto words = block(below_blocks ^ (i / 2));
  const uint64_t r = i % 2 == 0 ? join(words[0], words[1]) : join(words[2], words[3]);
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(r) * n) >> 64);
}

int64_t RandomStream::between(uint64_t i, int64_t low, int64_t high) const {
  if (low > high) {
    throw InvalidArgument("[random] between() needs low <= high, received " + std::to_string(low) +
                          " and " + std::to_string(high));
  }
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  uint64_t offset;
  if (span == ~uint64_t{0}) {  // all 64-bit numbers: span + 1 does not fit
    const auto words = block(below_blocks ^ (i / 2));
    offset = i % 2 == 0 ? join(words[0], words[1]) : join(words[2], words[3]);
  } else {
    offset = below(i, span + 1);
  }
  return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
}

double RandomStream::normal(uint64_t i) const {
  const auto words = block(normal_blocks ^ (i / 2));
  const uint64_t k1 = (join(words[0], words[1]) >> 11) + 1;  // in (0, 2^53]: never log(0)
  const uint64_t k2 = join(words[2], words[3]) >> 11;
  const double radius = std::sqrt(-2.0 * log_of(static_cast<double>(k1) * 0x1p-53));
  const auto [s, c] = sine_and_cosine_of_turn(k2);
  return radius * (i % 2 == 0 ? c : s);
}

std::vector<int64_t> random_permutation(const RandomKey& key, int64_t n) {
  if (n < 0) {
    throw InvalidArgument("[random] a permutation needs n >= 0, received " + std::to_string(n));
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  const RandomStream stream(key);
  for (uint64_t i = order.size(); i-- > 1;) std::swap(order[i], order[stream.below(i, i + 1)]);
  return order;
}

uint64_t key_from_text(std::string_view text) { return digest_of(text.data(), text.size()).low; }

}  // namespace lockstep
