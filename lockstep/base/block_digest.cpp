#include "lockstep/base/block_digest.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/xxh3.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define LOCKSTEP_WIDE_SUMS
#endif

namespace lockstep {
namespace {

// Shorter sequences are hashed at once. XXH3 treats those of up to 240 bytes in another way.
constexpr size_t kShort = 16 * BlockDigest::kBlock;
constexpr size_t kStripe = 64, kStripes = BlockDigest::kBlock / kStripe;
using Stripe = std::array<uint64_t, 8>;

constexpr std::array<uint64_t, 24> kSecret{LOCKSTEP_XXH3_SECRET};
using xxh3::kHighSecret, xxh3::kLastSecret, xxh3::kLowSecret, xxh3::kPrime1, xxh3::kPrime2,
    xxh3::kScrambleSecret, xxh3::kSmall1;

Stripe load(const void* from) {
  Stripe numbers;
  std::memcpy(numbers.data(), from, sizeof numbers);
  return numbers;
}
Stripe secret(size_t first) {
  return load(reinterpret_cast<const std::byte*>(kSecret.data()) + first);
}

void add_stripe(const std::byte* from, size_t secret_first, Stripe& sums) {
  const Stripe data = load(from), key = secret(secret_first);
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t mixed = data[i] ^ key[i];
    sums[i ^ 1] += data[i];
    sums[i] += (mixed & 0xffffffff) * (mixed >> 32);
  }
}

void add_stripes(const std::byte* from, size_t stripes, Stripe& sums) {
  for (size_t s = 0; s < stripes; ++s) add_stripe(from + s * kStripe, s * 8, sums);
}

void sums_by_numbers(const std::byte* from, Stripe& sums) {
  sums = {};
  add_stripes(from, kStripes, sums);
}

#ifdef LOCKSTEP_WIDE_SUMS
__attribute__((target("avx2"))) void sums_of_4(const std::byte* from, Stripe& sums) {
  const auto* const key = reinterpret_cast<const std::byte*>(kSecret.data());
  __m256i low = _mm256_setzero_si256(), high = low;
  for (size_t s = 0; s < kStripes; ++s) {
    const auto add = [&](size_t half, __m256i sum) __attribute__((target("avx2"))) {
      const auto at = s * kStripe + half;
      const __m256i data = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      const __m256i mixed = _mm256_xor_si256(
          data, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key + s * 8 + half)));
      sum = _mm256_add_epi64(sum, _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2)));
      return _mm256_add_epi64(sum, _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32)));
    };
    low = add(0, low);
    high = add(kStripe / 2, high);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.data()), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.data() + 4), high);
}

__attribute__((target("avx512f"))) void sums_of_8(const std::byte* from, Stripe& sums) {
  const auto* const key = reinterpret_cast<const std::byte*>(kSecret.data());
  // Masks of all lanes, because GCC 12 warns of its own definitions without masks.
  constexpr __mmask8 all = 0xff;
  __m512i sum = _mm512_setzero_si512(), products = sum;
  for (size_t s = 0; s < kStripes; ++s) {
    const __m512i data = _mm512_loadu_si512(from + s * kStripe);
    const __m512i mixed = _mm512_xor_si512(data, _mm512_loadu_si512(key + s * 8));
    sum = _mm512_add_epi64(sum, _mm512_maskz_shuffle_epi32(0xffff, data, _MM_PERM_BADC));
    const __m512i upper = _mm512_maskz_srli_epi64(all, mixed, 32);
    products = _mm512_add_epi64(products, _mm512_maskz_mul_epu32(all, mixed, upper));
  }
  _mm512_storeu_si512(sums.data(), _mm512_add_epi64(sum, products));
}
#endif

using SumsOfBlock = void (*)(const std::byte* from, Stripe& sums);

SumsOfBlock widest() {
#ifdef LOCKSTEP_WIDE_SUMS
  if (__builtin_cpu_supports("avx512f")) return sums_of_8;
  if (__builtin_cpu_supports("avx2")) return sums_of_4;
#endif
  return sums_by_numbers;
}

void scramble(Stripe& sums) {
  const Stripe key = secret(kScrambleSecret);
  for (size_t i = 0; i < 8; ++i) {
    sums[i] = (sums[i] ^ sums[i] >> 47 ^ key[i]) * kSmall1;
  }
}

uint64_t folded_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t merge(const Stripe& sums, size_t secret_first, uint64_t start) {
  const Stripe key = secret(secret_first);
  uint64_t h = start;
  for (size_t i = 0; i < 8; i += 2) h += folded_product(sums[i] ^ key[i], sums[i + 1] ^ key[i + 1]);
  h ^= h >> 37;
  h *= xxh3::kAvalanche;
  return h ^ h >> 32;
}

}  // namespace

void BlockDigest::begin(std::span<const std::span<const std::byte>> arrays) {
  arrays_.clear();
  size_ = 0;
  for (const auto& bytes : arrays) {
    arrays_.push_back({bytes, size_});
    size_ += bytes.size();
  }
  const size_t blocks = size_ < kShort ? 0 : (size_ - 1) / kBlock;
  sums_.resize(blocks);
  added_.assign(blocks, 0);
}

void BlockDigest::add(size_t array, size_t first, size_t size) {
  static const SumsOfBlock sums_of = widest();
  const Array& a = arrays_[array];
  const size_t begin = a.first + first;
  const size_t end = std::min((begin + size) / kBlock, sums_.size());
  for (size_t b = (begin + kBlock - 1) / kBlock; b < end; ++b) {
    sums_of(a.bytes.data() + (b * kBlock - a.first), sums_[b]);
    added_[b] = 1;
  }
}

void BlockDigest::copy(size_t first, size_t size, std::byte* to) const {
  for (const Array& a : arrays_) {
    const size_t begin = std::max(first, a.first);
    const size_t end = std::min(first + size, a.first + a.bytes.size());
    if (begin < end) {
      std::memcpy(to + (begin - first), a.bytes.data() + (begin - a.first), end - begin);
    }
  }
}

Digest BlockDigest::finish() {
  if (size_ < kShort) {
    Digester digester;
    for (const Array& a : arrays_) digester.bytes(a.bytes.data(), a.bytes.size());
    return digester.finish();
  }
  Stripe sums{LOCKSTEP_XXH3_START};
  std::array<std::byte, kBlock + kStripe> rest;
  for (size_t b = 0; b < sums_.size(); ++b) {
    if (!added_[b]) {
      copy(b * kBlock, kBlock, rest.data());
      sums_by_numbers(rest.data(), sums_[b]);
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += sums_[b][i];
    scramble(sums);
  }
  // The last block, and the last 64 bytes, which may lie in the block before.
  const size_t first = sums_.size() * kBlock, left = size_ - first;
  copy(first - kStripe, kStripe + left, rest.data());
  add_stripes(rest.data() + kStripe, (left - 1) / kStripe, sums);
  add_stripe(rest.data() + left, kLastSecret, sums);
  const auto size = static_cast<uint64_t>(size_);
  return {merge(sums, kHighSecret, ~(size * kPrime2)), merge(sums, kLowSecret, size * kPrime1)};
}

}  // namespace lockstep
