#include "lockstep/engine/device/recording.h"

#include <atomic>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_log.h"

namespace lockstep {
namespace {

std::atomic<int64_t> recordings_made{0}, recordings_failed{0};

}  // namespace

RecordingFigures recording_figures() { return {recordings_made, recordings_failed}; }

Recording::Recording(Recording&& other) noexcept
    : device_(other.device_),
      stream_(other.stream_),
      has_run_(other.has_run_),
      recordable_(other.recordable_),
      recording_(std::exchange(other.recording_, nullptr)) {}

void Recording::run(const std::function<void()>& add) {
  if (!recording_ && has_run_ && recordable_ && device_->records()) {
    std::string why = "the device could not make it";
    record(add, why);
    if (has_device_log()) {
      add_to_device_log(recording_ ? R"({"recording":"made"})"
                                   : R"({"recording":"failed","why":)" + quoted_for_log(why) + "}");
    }
  }
  if (recording_) {
    device_->replay(recording_, stream_);
  } else {
    add();
    has_run_ = true;
  }
}

// Leaves recording_ null if the work cannot be recorded. Errors of the work itself are dropped
// here; run() then adds the work directly, which throws them again.
void Recording::record(const std::function<void()>& add, std::string& why) {
  device_->begin_recording(stream_);
  const auto drop = [&] {
    if (void* half = device_->end_recording(stream_)) device_->release_recording(half);
  };
  try {
    add();
    recording_ = device_->end_recording(stream_);
  } catch (const Error& error) {
    drop();
    why = error.what();
  } catch (...) {
    drop();
    throw;
  }
  recordable_ = recording_ != nullptr;
  ++(recordable_ ? recordings_made : recordings_failed);
}

void Recording::forget() noexcept {
  if (recording_) device_->release_recording(recording_);
  recording_ = nullptr;
  has_run_ = false;
  recordable_ = true;
}

}  // namespace lockstep
