#include "lockstep/engine/device/recording.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/device_log.h"

namespace lockstep {
namespace {

struct Figures {
  Mutex mutex;
  RecordingFigures all LOCKSTEP_GUARDED_BY(mutex);
};

Figures& figures() {
  static auto* instance = new Figures;
  return *instance;
}

void note_recording(bool made, const std::string& why) {
  {
    const MutexLock lock(figures().mutex);
    RecordingFigures& all = figures().all;
    ++(made ? all.made : all.failed);
    if (!made) all.reason = why;
  }
  if (!has_device_log()) return;
  add_to_device_log(made ? R"({"recording":"made"})"
                         : R"({"recording":"failed","why":)" + quoted_for_log(why) + "}");
}

}  // namespace

RecordingFigures recording_figures() {
  const MutexLock lock(figures().mutex);
  return figures().all;
}

Recording::Recording(Recording&& other) noexcept
    : device_(other.device_),
      stream_(other.stream_),
      has_run_(other.has_run_),
      recordable_(other.recordable_),
      recording_(std::exchange(other.recording_, nullptr)) {}

void Recording::run(const std::function<void()>& add) {
  if (!recording_ && has_run_ && recordable_ && device_->records()) {
    std::string why;
    record(add, why);
    note_recording(recording_ != nullptr, why);
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
    std::string unused;
    if (void* half = device_->end_recording(stream_, unused)) device_->release_recording(half);
  };
  try {
    add();
    recording_ = device_->end_recording(stream_, why);
  } catch (const Error& error) {
    drop();
    why = error.what();
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
