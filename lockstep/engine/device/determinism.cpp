#include "lockstep/engine/device/determinism.h"

#include <atomic>

namespace lockstep {
namespace {

std::atomic<bool> wanted{true};

}  // namespace

bool set_deterministic(bool on) { return wanted.exchange(on); }

bool deterministic() { return wanted.load(); }

}  // namespace lockstep
