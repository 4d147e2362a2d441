#include "lockstep/base/os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
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

// False if the file was removed, or replaced, after it was opened.
bool is_still_at(int descriptor, const std::string& path) {
  struct stat opened {
  }, present{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &present) == 0 &&
         opened.st_dev == present.st_dev && opened.st_ino == present.st_ino;
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
  for (int attempt = 1;; ++attempt) {
    auto held = std::make_unique<Held>();
    int error = 0;
    bool present = false;
    held->thread->run([&] {
      held->descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      error = held->descriptor < 0 ? errno : try_flock(held->descriptor, LOCK_EX);
      present = error == 0 && is_still_at(held->descriptor, path);
    });
    if (present) return FileLock(std::move(held));
    if (error != 0 && error != EWOULDBLOCK) {
      throw FileError(std::string("[file] cannot ") + (held->descriptor < 0 ? "open " : "lock ") +
                      path + ": " + std::system_category().message(error));
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
