#include "lockstep/base/error.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

void run_target(std::span<const std::byte> bytes) {
  try {
    parse(bytes);
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
  }
}

}  // namespace lockstep::fuzz
