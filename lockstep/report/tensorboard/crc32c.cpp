#include "lockstep/report/tensorboard/crc32c.h"

#include <array>

namespace lockstep {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78u : 0);
    table[byte] = rest;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = make_crc_table();
  uint32_t rest = 0xffffffffu;
  for (const char c : bytes) rest = table[(rest ^ static_cast<uint8_t>(c)) & 0xff] ^ (rest >> 8);
  return rest ^ 0xffffffffu;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace lockstep
