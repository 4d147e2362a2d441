#include "lockstep/base/os/processor.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <cstring>

namespace lockstep {

std::string processor_vendor() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return "unknown";
  std::string vendor(12, '\0');
  std::memcpy(&vendor[0], &b, 4);
  std::memcpy(&vendor[4], &d, 4);
  std::memcpy(&vendor[8], &c, 4);
  return vendor;
}

std::string processor_model() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return "unknown";
  unsigned family = (a >> 8) & 0xf, model = (a >> 4) & 0xf;
  if (family == 6 || family == 15) model += ((a >> 16) & 0xf) << 4;
  if (family == 15) family += (a >> 20) & 0xff;
  return fmt::format("family {} model {}", family, model);
}

}  // namespace lockstep
