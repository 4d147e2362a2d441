#include "tests/engine/devices/fake_device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/devices.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/shapes/copy_pieces.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/engine/kernels/solvers/solver.h"

namespace lockstep::devicetest {
namespace {

using Task = std::function<void()>;

// Kinds of work. `order` has no effect but its place among other work.
enum class Kind { kernel, to_device, to_host, within, other, order };

}  // namespace

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
  explicit FakeMemory(const FakeOptions& options)
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
  ~FakeMemory() override {
    finish(nullptr);
    munmap(region_, bytes_);
  }

  // Runs `body` while the memory is accessible.
  void inside(const Task& body) {
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

  void activate() override {}
  void* allocate(size_t bytes) override {
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
  void release(void* data) noexcept override {
    std::lock_guard lock(mutex_);
    finish(nullptr);
    auto* const piece = static_cast<std::byte*>(data);
    used -= sizes_[piece];
    spare_[sizes_[piece]].push_back(piece);
  }
  DeviceMemoryFigures figures() override { return {bytes_ - used, bytes_}; }

  void* allocate_pinned(size_t bytes) override {
    std::lock_guard lock(mutex_);
    void* const data = std::calloc(1, bytes);
    pinned_[data] = bytes;
    return data;
  }
  void release_pinned(void* data) noexcept override {
    std::lock_guard lock(mutex_);
    pinned_.erase(data);
    std::free(data);
  }

  void* default_stream() override { return default_stream_; }
  void* make_stream() override {
    std::lock_guard lock(mutex_);
    auto& stream = streams_.emplace_back(std::make_unique<FakeStream>());
    stream->memory = this;
    return stream.get();
  }
  void release_stream(void* stream) noexcept override {
    std::lock_guard lock(mutex_);
    if (!of(stream).tasks.empty()) misuse_.push_back("released a stream with work in it");
  }
  void synchronize(void* stream) override {
    std::lock_guard lock(mutex_);
    if (recording_) misuse_.push_back("waited while a recording was made");
    ++counts.waits;
    ++counts.drains;
    finish(stream);
  }
  void follow(void* stream, void* other) override {
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

  void* make_mark() override { return new Mark; }
  void set_mark(void* mark, void* stream) override {
    std::lock_guard lock(mutex_);
    if (recording_) misuse_.push_back("set a mark while a recording was made");
    marks += stream == default_stream_;
    *static_cast<Mark*>(mark) = {&of(stream), of(stream).added};
  }
  void wait_for(void* mark) override {
    std::lock_guard lock(mutex_);
    if (recording_) misuse_.push_back("waited while a recording was made");
    const Mark& at = *static_cast<Mark*>(mark);
    if (!at.stream || at.stream->done >= at.number) return;
    ++counts.waits;
    if (at.stream->added == at.number) ++counts.drains;
    at.stream->run_until(at.number);
  }
  void release_mark(void* mark) noexcept override { delete static_cast<Mark*>(mark); }

  void copy_from_host(void* to, const void* host, size_t bytes, void* stream) override {
    if (is_pinned(host)) {
      of(stream).add(Kind::to_device, [=] { std::memcpy(to, host, bytes); });
    } else {
      const auto* from = static_cast<const std::byte*>(host);
      of(stream).add(Kind::to_device, [to, taken = std::vector<std::byte>(from, from + bytes)] {
        std::memcpy(to, taken.data(), taken.size());
      });
    }
  }
  void copy_to_host(void* host, const void* from, size_t bytes, void* stream) override {
    of(stream).add(Kind::to_host, [=] { std::memcpy(host, from, bytes); });
  }
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    of(stream).add(Kind::within, [=] { std::memcpy(to, from, bytes); });
  }
  void zero(void* data, size_t bytes, void* stream) override {
    of(stream).add(Kind::kernel, [=] { std::memset(data, 0, bytes); });
  }

  bool records() const override { return records_; }
  void begin_recording(void* stream) override {
    std::lock_guard lock(mutex_);
    of(stream).recording = std::make_shared<FakeRecording>();
    of(stream).recording->streams.push_back(&of(stream));
    recording_ = true;
  }
  void* end_recording(void* stream, std::string& reason) noexcept override {
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
  void replay(void* recording, void* stream) override {
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
  void release_recording(void* recording) noexcept override {
    delete static_cast<std::shared_ptr<FakeRecording>*>(recording);
  }

  std::vector<std::string> misuse() {
    std::lock_guard lock(mutex_);
    return misuse_;
  }

  std::recursive_mutex& mutex() { return mutex_; }
  // Waits without counting: for calls of the stand-in itself.
  void finish(void* stream) {
    for (const auto& q : streams_) {
      if (!stream || q.get() == stream) q->run_until(q->added);
    }
  }
  void note(Kind kind) {
    counts.kernels += kind == Kind::kernel;
    counts.to_device += kind == Kind::to_device;
    counts.to_host += kind == Kind::to_host;
    counts.within += kind == Kind::within;
  }

  const bool computes, recordings_fail;
  int recordings = 0, replays = 0, marks = 0;
  DeviceCounts counts;
  size_t used = 0;

 private:
  static FakeStream& of(void* stream) { return *static_cast<FakeStream*>(stream); }
  void leave() {
    if (--depth_ == 0) mprotect(region_, bytes_, PROT_NONE);
  }
  bool is_pinned(const void* host) {
    std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const std::byte*>(host);
    for (const auto& [data, bytes] : pinned_) {
      const auto* const first = static_cast<const std::byte*>(data);
      if (first <= at && at < first + bytes) return true;
    }
    return false;
  }

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

void FakeStream::run_until(uint64_t number) {
  while (done < number && !tasks.empty()) {
    for (const TimeLimit limit(60); tasks.front().ready && !tasks.front().ready();) {
      if (limit.reached()) throw Timeout("[fake] work that is never ready");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    run_first();
  }
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

namespace {

kernels::Pass on_stream(kernels::Pass pass, bool needs_step) {
  pass.bind = [inner = std::move(pass.bind), needs_step](const kernels::PassMemory& where) {
    auto* const stream = static_cast<FakeStream*>(where.stream);
    if (!stream) throw InternalError("[fake] a pass was bound without a stream");
    if (needs_step && !where.device_step) {
      throw InternalError("[fake] a pass was bound without a step on the device");
    }
    kernels::BoundPass body;
    stream->memory->inside([&] {
      body = inner({.reads = where.reads,
                    .writes = where.writes,
                    .scratch = where.scratch,
                    .device_step = where.device_step});
    });
    return kernels::BoundPass([stream, body, step = where.device_step](const StepInfo&) {
      stream->add(Kind::kernel, [body, step] { body(step ? *step : StepInfo{}); });
    });
  };
  return pass;
}

FakeStream& of(void* stream) {
  if (!stream) throw InternalError("[fake] an update was added to no stream");
  return *static_cast<FakeStream*>(stream);
}

// The kernels behind all devices.
const kernels::Table* behind = nullptr;

const kernels::Table& kernels_behind() { return behind ? *behind : kernels::table_for({}); }

// The function behind an entry, as work of a stream. Its last parameter is the stream.
template <auto entry, class Result, class... Parameters>
Result on_device(Parameters... parameters) {
  const auto function = kernels_behind().*entry;
  if constexpr (std::is_same_v<Result, kernels::Kernel>) {
    kernels::Kernel made = function(parameters...);
    made.forward = on_stream(std::move(made.forward), true);
    for (auto& pass : made.backward) pass = on_stream(std::move(pass), true);
    return made;
  } else if constexpr (std::is_same_v<Result, kernels::Pass>) {
    return on_stream(function(parameters...), false);
  } else {
    std::tuple<std::decay_t<Parameters>...> copies(parameters...);
    void*& last = std::get<sizeof...(Parameters) - 1>(copies);
    FakeStream& stream = of(std::exchange(last, nullptr));
    stream.add(Kind::kernel, [=] { std::apply(function, copies); });
  }
}

// Replaces the CPU's function; leaves null where the CPU has none.
template <auto entry, class Result, class... Parameters>
void put_on_device(Result (*&function)(Parameters...)) {
  if (function) function = on_device<entry, Result, Parameters...>;
}

// A block of a parameter.
struct Part {
  float *w, *first, *second;
  const float* gradient_sum;
  size_t count;
};

template <class Update, class Body>
void update_blocks(const kernels::Updates<Update>& all, void* stream, Body body) {
  of(stream).add(Kind::kernel, [=] {
    for (int64_t i = 0; i < all.block_count; ++i) {
      const kernels::UpdateBlock block = all.blocks[i];
      const kernels::ParameterArrays& a = all.arrays[block.parameter];
      const Part part{a.w + block.first, a.first + block.first,
                      a.second ? a.second + block.first : nullptr, a.gradient_sum + block.first,
                      static_cast<size_t>(std::min(kernels::kUpdateBlock, a.count - block.first))};
      body(kernels::table_for({}), part, all.updates[block.parameter]);
    }
  });
}

kernels::Table make_table() {
  using kernels::Table;
  return [] {
    Table t = kernels_behind();
    t.tf32 = true;
    kernels::for_each_kernel([&]<kernels::KernelId, auto entry>() {
      put_on_device<entry>(t.*entry);
    });
    if (t.sgdm_of_all) return t;
    // The CPU has no kernels for all parameters at once.
    t.sgdm_of_all = [](const kernels::Updates<kernels::SgdmUpdate>& all, void* stream) {
      update_blocks(all, stream, [](const kernels::Table& cpu, const Part& p, const auto& u) {
        cpu.sgdm(p.w, p.first, p.gradient_sum, p.count, u, nullptr);
      });
    };
    t.adam_of_all = [](const kernels::Updates<kernels::AdamUpdate>& all, void* stream) {
      update_blocks(all, stream, [](const kernels::Table& cpu, const Part& p, const auto& u) {
        cpu.adam(p.w, p.first, p.second, p.gradient_sum, p.count, u, nullptr);
      });
    };
    t.rmsprop_of_all = [](const kernels::Updates<kernels::RmspropUpdate>& all, void* stream) {
      update_blocks(all, stream, [](const kernels::Table& cpu, const Part& p, const auto& u) {
        cpu.rmsprop(p.w, p.first, p.gradient_sum, p.count, u, nullptr);
      });
    };
    return t;
  }();
}

// Made again for each device, since the kernels behind it may be others. Tables are never
// destroyed, because devices refer to them.
const kernels::Table& fake_table(const kernels::Table* kernels) {
  static std::map<const kernels::Table*, std::unique_ptr<kernels::Table>> tables;
  behind = kernels;
  auto& made = tables[kernels];
  if (!made || kernels) made = std::make_unique<kernels::Table>(make_table());
  return *made;
}

}  // namespace

FakeDevice::FakeDevice(int index, const FakeOptions& options)
    : device_{Device::Kind::cuda, index}, memory_(std::make_shared<FakeMemory>(options)) {
  register_device_memory(device_, memory_);
  register_device_groups(device_, make_fake_groups(options));
  kernels::register_table(device_, &fake_table(options.kernels));
}

FakeDevice::~FakeDevice() {
  EXPECT_EQ(misuse(), std::vector<std::string>{});
  kernels::register_table(device_, nullptr);
  register_device_groups(device_, nullptr);
  register_device_memory(device_, nullptr);
}

DeviceCounts DeviceCounts::operator-(const DeviceCounts& o) const {
  return {kernels - o.kernels,
          recordings - o.recordings,
          to_device - o.to_device,
          to_host - o.to_host,
          within - o.within,
          recorded_kernels - o.recorded_kernels,
          recorded_copies - o.recorded_copies,
          waits - o.waits,
          drains - o.drains};
}

std::string DeviceCounts::to_string() const {
  return std::to_string(kernels) + " kernels one by one, " + std::to_string(recordings) +
         " recordings with " + std::to_string(recorded_kernels) + " kernels and " +
         std::to_string(recorded_copies) +
         " copies; copies one by one: " + std::to_string(to_device) + " to the device, " +
         std::to_string(to_host) + " to the host, " + std::to_string(within) + " within; " +
         std::to_string(waits) + " waits, " + std::to_string(drains) + " of them for all work";
}

DeviceCounts FakeDevice::counts() const { return memory_->counts; }
const kernels::Table& FakeDevice::table() const { return kernels::table_for(device_); }
DeviceMemory& FakeDevice::memory() const { return *memory_; }

int FakeDevice::recordings() const { return memory_->recordings; }
int FakeDevice::marks() const { return memory_->marks; }
int FakeDevice::replays() const { return memory_->replays; }
size_t FakeDevice::used() const { return memory_->used; }
std::vector<std::string> FakeDevice::misuse() const { return memory_->misuse(); }

}  // namespace lockstep::devicetest
