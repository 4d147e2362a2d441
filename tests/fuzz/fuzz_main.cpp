// For libFuzzer, which provides main().
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::fuzz::run_target({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
