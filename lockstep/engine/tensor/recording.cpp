#include "lockstep/engine/tensor/recording.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

Recording::Recording(Recording&& other) noexcept
    : device_(other.device_),
      queue_(other.queue_),
      has_run_(other.has_run_),
      recordable_(other.recordable_),
      recording_(std::exchange(other.recording_, nullptr)) {}

void Recording::run(const std::function<void()>& add) {
  if (!recording_ && has_run_ && recordable_ && device_->records()) record(add);
  if (recording_) {
    device_->replay(recording_, queue_);
  } else {
    add();
    has_run_ = true;
  }
}

// Leaves nothing where no recording can be made; what is wrong with the work apart from that,
// adding it will say.
void Recording::record(const std::function<void()>& add) {
  device_->begin_recording(queue_);
  const auto drop = [&] {
    if (void* half = device_->end_recording(queue_)) device_->release_recording(half);
  };
  try {
    add();
    recording_ = device_->end_recording(queue_);
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
