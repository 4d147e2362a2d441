#include "lockstep/engine/kernels/tf32.h"

#include <atomic>
#include <utility>

namespace lockstep::kernels {
namespace {

thread_local bool allowed = false;
std::atomic<bool (*)(bool)> follower{nullptr};

}  // namespace

bool set_tf32(bool on) {
  if (auto* const set = follower.load()) set(on);
  return std::exchange(allowed, on);
}

bool tf32() { return allowed; }

void follow_tf32(bool (*set)(bool on)) {
  follower = set;
  if (set) set(allowed);
}

}  // namespace lockstep::kernels
