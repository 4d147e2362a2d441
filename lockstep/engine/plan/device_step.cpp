#include "lockstep/engine/plan/device_step.h"

#include <new>

namespace lockstep {

DeviceStep::DeviceStep(Device device, void* stream)
    : device_(memory_of(device)),
      stream_(stream),
      memory_(allocate(sizeof(StepInfo), device)),
      slots_(static_cast<StepInfo*>(device_.allocate_pinned(kSlots * sizeof(StepInfo)))) {}

DeviceStep::~DeviceStep() { device_.release_pinned(slots_); }

void DeviceStep::set(const StepInfo& step) {
  if (last_ == step) return;
  if (used_ == kSlots) {
    device_.synchronize(stream_);
    used_ = 0;
  }
  const StepInfo* const slot = new (slots_ + used_++) StepInfo(step);
  device_.copy_from_host(memory_.data(), slot, sizeof step, stream_);
  last_ = step;
}

}  // namespace lockstep
