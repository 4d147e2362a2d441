#include "lockstep/report/tensorboard/crc32c.h"

#include "lockstep/base/crc.h"

namespace lockstep {

uint32_t crc32c(std::string_view bytes) {
  static const Crc<uint32_t> crc(polynomial_crc32c);
  return crc.of(bytes);
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace lockstep
