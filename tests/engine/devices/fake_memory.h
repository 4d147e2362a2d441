// The memory and the streams of a stand-in device: work is kept until a thread waits for it, and
// the host cannot access the memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/engine/device/device_memory.h"
#include "tests/engine/devices/fake_device.h"

namespace lockstep::devicetest {

using Task = std::function<void()>;

// Kinds of work. `order` has no effect but its place among other work.
enum class Kind { kernel, to_device, to_host, within, other, order };

struct FakeStream;

// Work of one or several streams. A stream takes part once it follows one that does, and the first
// stream must follow all others at the end.
struct FakeRecording {
  std::vector<Task> tasks;
  int64_t kernels = 0, copies = 0;
  std::vector<FakeStream*> streams;
  bool broken = false;
};

// A position in a stream's work.
struct Mark {
  FakeStream* stream = nullptr;
  uint64_t number = 0;
};

struct FakeStream {
  struct Work {
    Task task;
    std::function<bool()> ready;  // none: immediately
  };

  FakeMemory* memory = nullptr;
  std::deque<Work> tasks;
  uint64_t added = 0, done = 0;
  std::shared_ptr<FakeRecording> recording;  // under construction
  bool followed = true;                      // work of the recording on this stream

  void add(Kind kind, Task task, std::function<bool()> ready = {});
  void run_until(uint64_t number);
  bool run_ready();
  void run_first();
};

class FakeMemory final : public DeviceMemory {
 public:
  explicit FakeMemory(const FakeOptions& options);
  ~FakeMemory() override;

  // Runs `body` while the memory is accessible.
  void inside(const Task& body);

  void activate() override {}
  void* allocate(size_t bytes) override;
  void release(void* data) noexcept override;
  DeviceMemoryFigures figures() override { return {bytes_ - used, bytes_}; }

  void* allocate_pinned(size_t bytes) override;
  void release_pinned(void* data) noexcept override;

  void* default_stream() override { return default_stream_; }
  void* make_stream() override;
  void release_stream(void* stream) noexcept override;
  void synchronize(void* stream) override;
  void follow(void* stream, void* other) override;

  void* make_mark() override { return new Mark; }
  void set_mark(void* mark, void* stream) override;
  void wait_for(void* mark) override;
  void release_mark(void* mark) noexcept override { delete static_cast<Mark*>(mark); }

  void copy_from_host(void* to, const void* host, size_t bytes, void* stream) override;
  void copy_to_host(void* host, const void* from, size_t bytes, void* stream) override;
  void copy(void* to, const void* from, size_t bytes, void* stream) override;
  void zero(void* data, size_t bytes, void* stream) override;

  bool records() const override { return records_; }
  void begin_recording(void* stream) override;
  void* end_recording(void* stream, std::string& reason) noexcept override;
  void replay(void* recording, void* stream) override;
  void release_recording(void* recording) noexcept override;

  std::vector<std::string> misuse();

  std::recursive_mutex& mutex() { return mutex_; }
  // Waits without counting: for calls of the stand-in itself.
  void finish(void* stream);
  void note(Kind kind);

  const bool computes, recordings_fail;
  int recordings = 0, replays = 0, marks = 0;
  DeviceCounts counts;
  size_t used = 0;

 private:
  static FakeStream& of(void* stream) { return *static_cast<FakeStream*>(stream); }
  void leave();
  bool is_pinned(const void* host);

  std::recursive_mutex mutex_;
  size_t bytes_;
  bool records_;
  std::byte* region_;
  size_t used_to_ = 0;
  int depth_ = 0;
  bool recording_ = false;
  void* default_stream_;
  std::map<size_t, std::vector<std::byte*>> spare_;
  std::map<std::byte*, size_t> sizes_;
  std::map<void*, size_t> pinned_;
  std::vector<std::unique_ptr<FakeStream>> streams_;
  std::vector<std::string> misuse_;
};

// The kernels of all devices: those behind them (null: the CPU's), as work of streams.
const kernels::Table& fake_table(const kernels::Table* kernels);

}  // namespace lockstep::devicetest
