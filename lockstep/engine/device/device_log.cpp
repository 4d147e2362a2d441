#include "lockstep/engine/device/device_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep {
namespace {

const char* device_log_path() {
  const char* const path = std::getenv("LOCKSTEP_DEVICE_LOG");
  return path && *path ? path : nullptr;
}

}  // namespace

bool has_device_log() { return device_log_path() != nullptr; }

void add_to_device_log(const std::string& object) noexcept {
  const char* const path = device_log_path();
  if (!path) return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  // One call, so that lines of several processes do not mix.
  std::string line;
  try {
    line = object + "\n";
  } catch (...) {
    close(file);
    return;
  }
  [[maybe_unused]] const auto written = write(file, line.data(), line.size());
  close(file);
}

std::string quoted_for_log(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c < ' ' || c > '~' ? ' ' : c;
  }
  return quoted + '"';
}

}  // namespace lockstep
