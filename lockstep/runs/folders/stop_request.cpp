#include "lockstep/runs/folders/stop_request.h"

namespace lockstep {

void request_stop(FileSystem& files, const std::string& folder) {
  files.open(join_path(folder, stop_request_name), false)->sync();
}

StopRequest::StopRequest(FileSystem& files, const std::string& folder)
    : files_(files),
      file_(join_path(folder, stop_request_name)),
      looked_(std::chrono::steady_clock::now()) {
  files_.remove(file_);
}

bool StopRequest::made() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < std::chrono::milliseconds(200)) return false;
  looked_ = now;
  if (!files_.exists(file_)) return false;
  files_.remove(file_);
  return true;
}

}  // namespace lockstep
