#include "lockstep/engine/plan/device_step.h"

#include <new>

namespace lockstep {

DeviceStep::DeviceStep(Device device, void* stream)
    : device_(memory_of(device)),
      stream_(stream),
      memory_(allocate(sizeof(RandomContext), device)),
      slots_(static_cast<RandomContext*>(device_.allocate_pinned(kSlots * sizeof(RandomContext)))),
      marks_{DeviceMark(device_), DeviceMark(device_)} {}

DeviceStep::~DeviceStep() { device_.release_pinned(slots_); }

void DeviceStep::set(const RandomContext& step) {
  if (last_ == step) return;
  DeviceMark& mark = marks_[next_ / kHalf];
  if (next_ % kHalf == 0) mark.wait();
  const RandomContext* const slot = new (slots_ + next_) RandomContext(step);
  device_.copy_from_host(memory_.data(), slot, sizeof step, stream_);
  if (next_ % kHalf == kHalf - 1) mark.set(stream_);
  next_ = (next_ + 1) % kSlots;
  last_ = step;
}

}  // namespace lockstep
