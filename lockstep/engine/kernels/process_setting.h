// A switch for the whole process that back ends loaded at run time follow. Thread-safe.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::kernels {

class ProcessSetting {
 public:
  explicit ProcessSetting(bool on) : on_(on) {}

  // Returns the setting before.
  bool set(bool on) {
    const std::lock_guard lock(mutex_);
    for (auto* follower : followers_) follower(on);
    return std::exchange(on_, on);
  }
  bool get() {
    const std::lock_guard lock(mutex_);
    return on_;
  }
  // `follower` is called with the setting now and whenever it is set; null: nobody.
  void follow(bool (*follower)(bool on)) {
    if (!follower) return;
    const std::lock_guard lock(mutex_);
    follower(on_);
    followers_.push_back(follower);
  }

 private:
  std::mutex mutex_;
  bool on_;
  std::vector<bool (*)(bool)> followers_;
};

}  // namespace lockstep::kernels
