// CRC-32C (Castagnoli), which TFRecord files use.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// The checksum of the bytes: polynomial 0x1EDC6F41, reflected. Thread-safe.
uint32_t crc32c(std::string_view bytes);

// The form in which TFRecord files contain it, so that a checksum over data with checksums is
// useful: rotated right by 15 bits, plus a constant.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep
