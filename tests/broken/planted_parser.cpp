// A parser with a defect, which whoever looks for defects must find: check_deep_test.py.
#include "lockstep/base/error.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void parse(std::span<const std::byte> bytes) {
  const std::string text = text_of(bytes);
  if (!text.starts_with("number ")) throw DataError("[planted] it is not a number");
  if (text.find("77") != std::string::npos) throw InternalError("[planted] the defect");
}

std::vector<Bytes> seeds() { return {bytes_of("number 12745679"), bytes_of("number 7")}; }

}  // namespace lockstep::fuzz
