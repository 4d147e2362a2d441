#include "lockstep/engine/device/recording.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

Recording::Recording(Recording&& other) noexcept
    : device_(other.device_),
      stream_(other.stream_),
      has_run_(other.has_run_),
      recordable_(other.recordable_),
      recording_(std::exchange(other.recording_, nullptr)) {}

void Recording::run(const std::function<void()>& add) {
  if (!recording_ && has_run_ && recordable_ && device_->records()) record(add);
  if (recording_) {
    device_->replay(recording_, stream_);
  } else {
    add();
    has_run_ = true;
  }
}

// Leaves recording_ null if the work cannot be recorded. Errors of the work itself are dropped
// here; run() then adds the work directly, which throws them again.
void Recording::record(const std::function<void()>& add) {
  device_->begin_recording(stream_);
  const auto drop = [&] {
    if (void* half = device_->end_recording(stream_)) device_->release_recording(half);
  };
  try {
    add();
    recording_ = device_->end_recording(stream_);
  } catch (const Error&) {
    drop();
  } catch (...) {
    drop();
    throw;
  }
  recordable_ = recording_ != nullptr;
}

void Recording::forget() noexcept {
  if (recording_) device_->release_recording(recording_);
  recording_ = nullptr;
  has_run_ = false;
  recordable_ = true;
}

}  // namespace lockstep
