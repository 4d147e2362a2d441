#include "tests/engine/devices/fake_memory.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/time_limit.h"

namespace lockstep::devicetest {

FakeMemory::FakeMemory(const FakeOptions& options)
    : computes(options.computes),
      recordings_fail(options.recordings_fail),
      bytes_(options.bytes),
      records_(options.records) {
  region_ = static_cast<std::byte*>(
      mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (region_ == MAP_FAILED) throw Error("[fake] no memory to stand in for a device's");
  if (options.large_pages) madvise(region_, bytes_, MADV_HUGEPAGE);
  default_stream_ = make_stream();
}

FakeMemory::~FakeMemory() {
  finish(nullptr);
  munmap(region_, bytes_);
}

void FakeMemory::inside(const Task& body) {
  std::lock_guard lock(mutex_);
  if (depth_++ == 0) mprotect(region_, bytes_, PROT_READ | PROT_WRITE);
  const ArithmeticMode mode;
  try {
    body();
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void* FakeMemory::allocate(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (recording_) misuse_.push_back("allocated while a recording was made");
  bytes = (bytes + 255) / 256 * 256;
  std::byte* data = nullptr;
  auto& spare = spare_[bytes];
  if (!spare.empty()) {
    data = spare.back();
    spare.pop_back();
  } else if (used_to_ + bytes <= bytes_) {
    data = region_ + used_to_;
    used_to_ += bytes;
  } else {
    return nullptr;
  }
  used += bytes;
  sizes_[data] = bytes;
  if (computes) inside([&] { std::memset(data, 0xff, bytes); });  // NaNs
  return data;
}

void FakeMemory::release(void* data) noexcept {
  std::lock_guard lock(mutex_);
  finish(nullptr);
  auto* const block = static_cast<std::byte*>(data);
  used -= sizes_[block];
  spare_[sizes_[block]].push_back(block);
}

void* FakeMemory::allocate_pinned(size_t bytes) {
  std::lock_guard lock(mutex_);
  void* const data = std::calloc(1, bytes);
  pinned_[data] = bytes;
  return data;
}

void FakeMemory::release_pinned(void* data) noexcept {
  std::lock_guard lock(mutex_);
  pinned_.erase(data);
  std::free(data);
}

void* FakeMemory::make_stream() {
  std::lock_guard lock(mutex_);
  auto& stream = streams_.emplace_back(std::make_unique<FakeStream>());
  stream->memory = this;
  return stream.get();
}

void FakeMemory::release_stream(void* stream) noexcept {
  std::lock_guard lock(mutex_);
  if (!of(stream).tasks.empty()) misuse_.push_back("released a stream with work in it");
}

void FakeMemory::synchronize(void* stream) {
  std::lock_guard lock(mutex_);
  if (recording_) misuse_.push_back("waited while a recording was made");
  ++counts.waits;
  ++counts.drains;
  finish(stream);
}

void FakeMemory::follow(void* stream, void* other) {
  std::lock_guard lock(mutex_);
  FakeStream &after = of(stream), &before = of(other);
  if (before.recording && !after.recording) {
    after.recording = before.recording;
    after.recording->streams.push_back(&after);
  }
  if (after.recording != before.recording) {
    after.recording->broken = true;
    throw Error("[fake] a recording waits for work outside it");
  }
  if (before.recording) {
    before.followed = true;
    after.followed = false;
    return;
  }
  after.add(Kind::order, [&before, number = before.added] { before.run_until(number); });
}

void FakeMemory::set_mark(void* mark, void* stream) {
  std::lock_guard lock(mutex_);
  if (recording_) misuse_.push_back("set a mark while a recording was made");
  marks += stream == default_stream_;
  *static_cast<Mark*>(mark) = {&of(stream), of(stream).added};
}

void FakeMemory::wait_for(void* mark) {
  std::lock_guard lock(mutex_);
  if (recording_) misuse_.push_back("waited while a recording was made");
  const Mark& at = *static_cast<Mark*>(mark);
  if (!at.stream || at.stream->done >= at.number) return;
  ++counts.waits;
  if (at.stream->added == at.number) ++counts.drains;
  at.stream->run_until(at.number);
}

void FakeMemory::copy_from_host(void* to, const void* host, size_t bytes, void* stream) {
  if (is_pinned(host)) {
    of(stream).add(Kind::to_device, [=] { std::memcpy(to, host, bytes); });
  } else {
    const auto* from = static_cast<const std::byte*>(host);
    of(stream).add(Kind::to_device, [to, taken = std::vector<std::byte>(from, from + bytes)] {
      std::memcpy(to, taken.data(), taken.size());
    });
  }
}

void FakeMemory::copy_to_host(void* host, const void* from, size_t bytes, void* stream) {
  of(stream).add(Kind::to_host, [=] { std::memcpy(host, from, bytes); });
}

void FakeMemory::copy(void* to, const void* from, size_t bytes, void* stream) {
  of(stream).add(Kind::within, [=] { std::memcpy(to, from, bytes); });
}

void FakeMemory::zero(void* data, size_t bytes, void* stream) {
  of(stream).add(Kind::kernel, [=] { std::memset(data, 0, bytes); });
}

void FakeMemory::begin_recording(void* stream) {
  std::lock_guard lock(mutex_);
  of(stream).recording = std::make_shared<FakeRecording>();
  of(stream).recording->streams.push_back(&of(stream));
  recording_ = true;
}

void* FakeMemory::end_recording(void* stream, std::string& reason) noexcept {
  std::lock_guard lock(mutex_);
  recording_ = false;
  const std::shared_ptr<FakeRecording> made = of(stream).recording;
  for (FakeStream* const part : made->streams) {
    made->broken |= !part->followed && part != &of(stream);
    part->recording.reset();
    part->followed = true;
  }
  if (recordings_fail || made->broken) {
    reason = made->broken ? "streams that do not end together" : "the stand-in records nothing";
    return nullptr;
  }
  ++recordings;
  return new std::shared_ptr<FakeRecording>(made);
}

void FakeMemory::replay(void* recording, void* stream) {
  const FakeRecording& recorded = **static_cast<std::shared_ptr<FakeRecording>*>(recording);
  ++replays;
  ++counts.recordings;
  counts.recorded_kernels += recorded.kernels;
  counts.recorded_copies += recorded.copies;
  of(stream).add(Kind::other, [computes = computes, tasks = recorded.tasks] {
    for (const Task& task : tasks) {
      if (computes) task();
    }
  });
}

void FakeMemory::release_recording(void* recording) noexcept {
  delete static_cast<std::shared_ptr<FakeRecording>*>(recording);
}

std::vector<std::string> FakeMemory::misuse() {
  std::lock_guard lock(mutex_);
  return misuse_;
}

void FakeMemory::finish(void* stream) {
  for (const auto& q : streams_) {
    if (!stream || q.get() == stream) q->run_until(q->added);
  }
}

void FakeMemory::note(Kind kind) {
  counts.kernels += kind == Kind::kernel;
  counts.to_device += kind == Kind::to_device;
  counts.to_host += kind == Kind::to_host;
  counts.within += kind == Kind::within;
}

void FakeMemory::leave() {
  if (--depth_ == 0) mprotect(region_, bytes_, PROT_NONE);
}

bool FakeMemory::is_pinned(const void* host) {
  std::lock_guard lock(mutex_);
  const auto* const at = static_cast<const std::byte*>(host);
  for (const auto& [data, bytes] : pinned_) {
    const auto* const first = static_cast<const std::byte*>(data);
    if (first <= at && at < first + bytes) return true;
  }
  return false;
}

void FakeStream::add(Kind kind, Task task, std::function<bool()> ready) {
  std::lock_guard lock(memory->mutex());
  const bool counted = kind == Kind::kernel || kind == Kind::to_device || kind == Kind::to_host ||
                       kind == Kind::within;
  if (recording) {
    recording->kernels += kind == Kind::kernel;
    recording->copies += counted && kind != Kind::kernel;
    recording->tasks.push_back(std::move(task));
    followed = false;
    return;
  }
  memory->note(kind);
  if (counted && !memory->computes) task = [] {};
  tasks.push_back({std::move(task), std::move(ready)});
  ++added;
}

void FakeStream::run_first() {
  const Task task = std::move(tasks.front().task);
  tasks.pop_front();
  if (memory->computes) {
    memory->inside(task);
  } else {
    task();
  }
  ++done;
}

// Once inside for all tasks: protecting much memory takes longer than most of them.
void FakeStream::run_until(uint64_t number) {
  if (done >= number || tasks.empty()) return;
  const auto run = [&] {
    while (done < number && !tasks.empty()) {
      for (const TimeLimit limit(60); tasks.front().ready && !tasks.front().ready();) {
        if (limit.reached()) throw Timeout("[fake] work that is never ready");
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      run_first();
    }
  };
  memory->computes ? memory->inside(run) : run();
}

bool FakeStream::run_ready() {
  std::lock_guard lock(memory->mutex());
  while (!tasks.empty() && (!tasks.front().ready || tasks.front().ready())) run_first();
  return tasks.empty();
}

void add_to(void* stream, std::function<void()> task, std::function<bool()> ready) {
  static_cast<FakeStream*>(stream)->add(Kind::other, std::move(task), std::move(ready));
}

bool run_ready(void* stream) { return static_cast<FakeStream*>(stream)->run_ready(); }

}  // namespace lockstep::devicetest
