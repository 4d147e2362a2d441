#include <atomic>

#include "lockstep/engine/device/devices.h"

namespace lockstep {
namespace {

std::atomic<bool> wanted{true};

}  // namespace

bool set_deterministic(bool on) { return wanted.exchange(on); }

bool deterministic() { return wanted.load(); }

}  // namespace lockstep
