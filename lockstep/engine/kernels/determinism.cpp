#include "lockstep/engine/kernels/determinism.h"

#include <mutex>
#include <vector>

namespace lockstep {
namespace {

struct Setting {
  std::mutex mutex;
  bool on = true;
  std::vector<bool (*)(bool)> followers;
};

Setting& setting() {
  static auto* instance = new Setting;  // back ends may ask until the very end
  return *instance;
}

}  // namespace

bool set_deterministic(bool on) {
  Setting& s = setting();
  const std::lock_guard lock(s.mutex);
  const bool before = s.on;
  s.on = on;
  for (auto* follow : s.followers) follow(on);
  return before;
}

bool deterministic() {
  const std::lock_guard lock(setting().mutex);
  return setting().on;
}

void kernels::follow_determinism(bool (*set)(bool on)) {
  if (!set) return;
  Setting& s = setting();
  const std::lock_guard lock(s.mutex);
  set(s.on);
  s.followers.push_back(set);
}

}  // namespace lockstep
