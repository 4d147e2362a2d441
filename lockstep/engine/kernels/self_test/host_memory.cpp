#include <cstdlib>
#include <cstring>
#include <new>

#include "lockstep/engine/kernels/self_test/self_test.h"

namespace lockstep::kernels {
namespace {

class HostMemory final : public DeviceMemory {
 public:
  void activate() override {}
  void* allocate(size_t bytes) override { return ::operator new(bytes, kAlignment, std::nothrow); }
  void release(void* data) noexcept override { ::operator delete(data, kAlignment); }
  DeviceMemoryFigures figures() override { return {}; }
  void* allocate_pinned(size_t bytes) override { return ::operator new(bytes); }
  void release_pinned(void* data) noexcept override { ::operator delete(data); }
  void* default_stream() override { return nullptr; }
  void* make_stream() override { return nullptr; }
  void release_stream(void*) noexcept override {}
  void synchronize(void*) override {}
  void follow(void*, void*) override {}
  void* make_mark() override { return nullptr; }
  void set_mark(void*, void*) override {}
  void wait_for(void*) override {}
  void release_mark(void*) noexcept override {}
  void copy_from_host(void* to, const void* host, size_t bytes, void*) override {
    std::memcpy(to, host, bytes);
  }
  void copy_to_host(void* host, const void* from, size_t bytes, void*) override {
    std::memcpy(host, from, bytes);
  }
  void copy(void* to, const void* from, size_t bytes, void*) override {
    std::memcpy(to, from, bytes);
  }
  void zero(void* data, size_t bytes, void*) override { std::memset(data, 0, bytes); }

 private:
  static constexpr std::align_val_t kAlignment{256};
};

}  // namespace

std::shared_ptr<DeviceMemory> host_as_device() { return std::make_shared<HostMemory>(); }

}  // namespace lockstep::kernels
