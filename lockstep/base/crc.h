// Cyclic redundancy checks with reflected polynomials, as CRC-32, CRC-32C and CRC-64/NVME use them.
// The method is "slicing by 8": M. Kounavis, F. Berry, "Novel table lookup-based algorithms for
// high-performance CRC generation", IEEE Transactions on Computers 57 (2008).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

// Thread-safe. `Word`: uint32_t or uint64_t.
template <class Word>
class Crc {
 public:
  // `polynomial`: its bits in reversed order, without the highest power.
  explicit constexpr Crc(Word polynomial) {
    for (size_t i = 0; i < 256; ++i) {
      Word word = static_cast<Word>(i);
      for (int bit = 0; bit < 8; ++bit) word = (word >> 1) ^ (word & 1 ? polynomial : Word{0});
      tables_[0][i] = word;
    }
    for (size_t t = 1; t < 8; ++t) {
      for (size_t i = 0; i < 256; ++i) {
        const Word before = tables_[t - 1][i];
        tables_[t][i] = (before >> 8) ^ tables_[0][before & 0xff];
      }
    }
  }

  // The checksum of the bytes: begins with all bits set and inverts the result.
  constexpr Word of(std::string_view bytes) const {
    Word crc = static_cast<Word>(~Word{0});
    size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      uint64_t eight = crc;
      for (size_t i = 0; i < 8; ++i) eight ^= uint64_t{byte(bytes, at + i)} << (8 * i);
      crc = 0;
      for (size_t i = 0; i < 8; ++i) crc ^= tables_[7 - i][eight >> (8 * i) & 0xff];
    }
    for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ tables_[0][(crc ^ byte(bytes, at)) & 0xff];
    return static_cast<Word>(~crc);
  }

 private:
  static constexpr uint8_t byte(std::string_view bytes, size_t i) {
    return static_cast<uint8_t>(bytes[i]);
  }
  Word tables_[8][256] = {};
};

// Castagnoli's, which files of TensorBoard and stores use.
inline constexpr uint32_t polynomial_crc32c = 0x82f63b78;

}  // namespace lockstep
