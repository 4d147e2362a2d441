#include "lockstep/base/os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int lock_attempts = 20;
constexpr std::chrono::milliseconds lock_pause{10};

// Returns 0, or an error number.
int try_flock(int descriptor, int operation) {
  int result;
  do result = ::flock(descriptor, operation | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::string& path) {
  Descriptor opened(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!opened) {
    throw FileError("[file] cannot open " + path + ": " + std::system_category().message(errno));
  }
  for (int attempt = 1;; ++attempt) {
    const int error = try_flock(opened.get(), LOCK_EX);
    if (error == 0) return FileLock(std::move(opened));
    if (error != EWOULDBLOCK) {
      throw FileError("[file] cannot lock " + path + ": " + std::system_category().message(error));
    }
    if (attempt == lock_attempts) return std::nullopt;
    std::this_thread::sleep_for(lock_pause);
  }
}

bool file_is_locked(const std::string& path) {
  const Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return opened && try_flock(opened.get(), LOCK_SH) == EWOULDBLOCK;
}

}  // namespace lockstep
