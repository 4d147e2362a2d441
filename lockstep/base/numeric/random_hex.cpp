#include "lockstep/base/numeric/random_hex.h"

#include <fmt/format.h>

#include <random>

namespace lockstep {

std::string random_hex(int words) {
  std::random_device source;
  std::string text;
  for (int i = 0; i < words; ++i) text += fmt::format("{:08x}", source());
  return text;
}

}  // namespace lockstep
