#include <atomic>

#include "lockstep/engine/device/devices.h"

namespace lockstep {
namespace {

std::atomic<bool> determinism_is_wanted{true};

}  // namespace

bool set_deterministic(bool on) { return determinism_is_wanted.exchange(on); }

bool deterministic() { return determinism_is_wanted.load(); }

}  // namespace lockstep
