#include "tests/engine/devices/fake_device.h"

#include <gtest/gtest.h>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/loading.h"
#include "tests/engine/devices/fake_memory.h"

namespace lockstep::devicetest {

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
