#include "lockstep/base/os/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/threads/held_signal.h"
#include "lockstep/base/threads/mutex.h"

namespace lockstep {
namespace {

size_t rounded(size_t bytes) { return round_up(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE))); }

[[noreturn]] void fail(const std::string& what) {
  const int error = errno;
  throw Error("[shared memory] " + what + ": " + std::strerror(error),
              error == EFBIG ? "raise the limit of the size of files (ulimit -f)" : "");
}

// Returns 0, or -1 with errno set. A size above the file size limit is also reported by errno.
int resize(int descriptor, size_t bytes) {
  const HeldSignal too_large(SIGXFSZ);
  return ftruncate(descriptor, static_cast<off_t>(bytes));
}

}  // namespace

struct SharedMemory::State {
  Descriptor descriptor;
  Mutex mutex;
  // End of the last region that was reserved or covered here.
  size_t end LOCKSTEP_GUARDED_BY(mutex) = 0;
  std::function<void(const SharedRange&)> told_of_free LOCKSTEP_GUARDED_BY(mutex);
};

SharedMemory::SharedMemory(const std::string& name) : state_(std::make_unique<State>()) {
  state_->descriptor = Descriptor(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!state_->descriptor) fail("it cannot be created");
}

SharedMemory::SharedMemory(int descriptor) : state_(std::make_unique<State>()) {
  state_->descriptor = Descriptor(descriptor);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

SharedMemory::~SharedMemory() = default;

int SharedMemory::descriptor() const { return state_->descriptor.get(); }

size_t SharedMemory::size() const {
  const MutexLock lock(state_->mutex);
  return state_->end;
}

SharedRange SharedMemory::reserve(size_t bytes) {
  const MutexLock lock(state_->mutex);
  const SharedRange range{state_->end, rounded(bytes == 0 ? 1 : bytes)};
  if (resize(descriptor(), range.offset + range.bytes) != 0) {
    fail("it cannot be extended by " + std::to_string(bytes) + " bytes");
  }
  state_->end += range.bytes;
  return range;
}

void SharedMemory::cover(const SharedRange& range) {
  const MutexLock lock(state_->mutex);
  const size_t end = range.offset + range.bytes;
  if (end < range.offset || end > size_t{1} << 46) {
    throw InvalidArgument("[shared memory] there is no region at " + std::to_string(range.offset));
  }
  if (end <= state_->end) return;
  if (resize(descriptor(), end) != 0) {
    fail("it cannot be extended by " + std::to_string(range.bytes) + " bytes");
  }
  state_->end = end;
}

void SharedMemory::on_free(std::function<void(const SharedRange&)> told) {
  const MutexLock lock(state_->mutex);
  state_->told_of_free = std::move(told);
}

void SharedMemory::free(const SharedRange& range) {
  {
    const MutexLock lock(state_->mutex);
    if (state_->told_of_free) state_->told_of_free(range);
  }
  // A failure is harmless: the memory is freed with the arena.
  fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(range.offset), static_cast<off_t>(range.bytes));
}

SharedRegion SharedMemory::map(const SharedRange& range) const {
  struct stat status {};
  if (fstat(descriptor(), &status) != 0) fail("its size cannot be read");
  const auto size = static_cast<size_t>(status.st_size);
  if (range.bytes == 0 || range.offset != rounded(range.offset) || range.bytes > size ||
      range.offset > size - range.bytes) {
    throw InvalidArgument("[shared memory] a region of " + std::to_string(range.bytes) +
                          " bytes at " + std::to_string(range.offset) + " is outside the " +
                          std::to_string(size) + " bytes of shared memory");
  }
  const size_t bytes = range.bytes;
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor(),
                        static_cast<off_t>(range.offset));
  if (at == MAP_FAILED) {
    const std::string what = "a region of " + std::to_string(bytes) + " bytes cannot be mapped";
    if (errno != ENOMEM) fail(what);
    throw OutOfMemory("[shared memory] " + what + ": " + out_of_memory_text(),
                      out_of_memory_hint());
  }
  return {static_cast<std::byte*>(at), [bytes](std::byte* data) { munmap(data, bytes); }};
}

}  // namespace lockstep
