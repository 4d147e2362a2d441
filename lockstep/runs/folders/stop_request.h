// A request to stop a run: a file in its folder, so that it works across processes and hosts.
#pragma once

#include <chrono>
#include <string>

#include "lockstep/base/os/file.h"

namespace lockstep {

inline constexpr const char* stop_request_name = "stop";

// Requests that the process that works in the folder ends the run after an iteration and a
// checkpoint. Has no effect on a run that is not running: its next start removes the request.
// Throws FileError. Thread-safe.
void request_stop(FileSystem& files, const std::string& folder);

// For the process that works in the folder. Not thread-safe.
class StopRequest {
 public:
  // Removes an earlier request. Throws FileError.
  StopRequest(FileSystem& files, const std::string& folder);

  // Whether a stop is requested now. Looks at the file at most five times a second, so that it may
  // be called after every iteration. Removes the request.
  bool made();

 private:
  FileSystem& files_;
  const std::string file_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace lockstep
