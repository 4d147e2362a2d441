#include "lockstep/engine/device/poison.h"

#include <cstring>

namespace lockstep {

std::atomic<Poison> detail::present_poison{Poison::none};

void fill_with_poison(void* memory, size_t bytes) {
  const Poison pattern = poison();
  if (pattern == Poison::none || bytes == 0) return;
  std::memset(memory, pattern == Poison::huge ? 0x7f : 0xff, bytes);
}

Poisoned::Poisoned(Poison pattern) : before_(detail::present_poison.exchange(pattern)) {}

Poisoned::~Poisoned() { detail::present_poison = before_; }

}  // namespace lockstep
