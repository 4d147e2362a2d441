#include "lockstep/base/os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/apart_thread.h"

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

struct FileLock::Held {
  Held() = default;
  ~Held() {
    if (descriptor < 0 || !thread->is_of_this_process()) return;
    thread->run([this] { ::close(descriptor); });
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  LentApartThread thread;
  int descriptor = -1;
};

FileLock::FileLock(std::unique_ptr<Held> held) : held_(std::move(held)) {}
FileLock::~FileLock() = default;
FileLock::FileLock(FileLock&&) noexcept = default;
FileLock& FileLock::operator=(FileLock&&) noexcept = default;

std::optional<FileLock> FileLock::take(const std::string& path) {
  auto held = std::make_unique<Held>();
  int error = 0;
  held->thread->run([&] {
    held->descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (held->descriptor < 0) error = errno;
  });
  if (error != 0) {
    throw FileError("[file] cannot open " + path + ": " + std::system_category().message(error));
  }
  for (int attempt = 1;; ++attempt) {
    held->thread->run([&] { error = try_flock(held->descriptor, LOCK_EX); });
    if (error == 0) return FileLock(std::move(held));
    if (error != EWOULDBLOCK) {
      throw FileError("[file] cannot lock " + path + ": " + std::system_category().message(error));
    }
    if (attempt == lock_attempts) return std::nullopt;
    std::this_thread::sleep_for(lock_pause);
  }
}

bool file_is_locked(const std::string& path) {
  bool locked = false;
  LentApartThread thread;
  thread->run([&] {
    const Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    locked = opened && try_flock(opened.get(), LOCK_SH) == EWOULDBLOCK;
  });
  return locked;
}

}  // namespace lockstep
