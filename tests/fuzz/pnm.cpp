#include "tests/fuzz/images.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void parse(std::span<const std::byte> bytes) { decode_checked(bytes); }

std::vector<Bytes> seeds() {
  return {bytes_of("P5 3 2 255\n" + std::string(6, 'x')),
          bytes_of("P6\n# a comment\n2 2\n255\n" + std::string(12, 'y')),
          bytes_of("P4 9 2\n" + std::string(4, 'z')),
          bytes_of("P5 2 2 65535 " + std::string(8, 'w')),
          bytes_of("P6 1 1 7 " + std::string(3, '\3'))};
}

}  // namespace lockstep::fuzz
