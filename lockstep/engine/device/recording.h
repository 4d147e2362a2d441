// Repeated work on a stream, recorded once and replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/engine/device/device_memory.h"

namespace lockstep {

// Recordings of this process since its start.
struct RecordingFigures {
  int64_t made = 0;
  int64_t failed = 0;  // the device could not record the work, so each run adds it step by step
  std::string reason = {};  // of the last one that failed
};
RecordingFigures recording_figures();  // thread-safe

// The first run adds the work directly, the second run records it, and later runs replay the
// recording with one call. If the device cannot record, or not this work, every run adds the work
// directly. Not thread-safe.
class Recording {
 public:
  // The device and the stream must outlive the recording. No other code may add to the stream while
  // it records, so shared streams such as a device's default stream are not allowed.
  Recording(DeviceMemory& device, void* stream) : device_(&device), stream_(stream) {}
  // The stream must have finished the recorded work.
  ~Recording() { forget(); }
  Recording(Recording&& other) noexcept;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  Recording& operator=(Recording&&) = delete;

  // `add` adds the work to the stream. It must add the same work each time until forget() is
  // called. Values that change must lie in memory whose address does not change.
  void run(const std::function<void()>& add);
  // Discards the recording, because the next work differs. The stream must have finished the
  // recorded work.
  void forget() noexcept;
  // Whether the device could not record the work.
  bool failed() const { return !recordable_; }

 private:
  // `why` receives the reason of a failure.
  void record(const std::function<void()>& add, std::string& why);

  DeviceMemory* device_;
  void* stream_;
  bool has_run_ = false, recordable_ = true;
  void* recording_ = nullptr;
};

}  // namespace lockstep
