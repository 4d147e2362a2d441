#include "lockstep/engine/device/device_group.h"

#include <map>
#include <utility>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {
namespace {

struct Known {
  Mutex mutex;
  std::map<Device, std::shared_ptr<DeviceGroups>> of LOCKSTEP_GUARDED_BY(mutex);
};

Known& known() {
  static auto* instance = new Known;
  return *instance;
}

}  // namespace

void register_device_groups(Device device, std::shared_ptr<DeviceGroups> groups) {
  const MutexLock lock(known().mutex);
  known().of[device] = std::move(groups);
}

std::shared_ptr<DeviceGroups> device_groups_of(Device device) {
  const MutexLock lock(known().mutex);
  const auto found = known().of.find(device);
  return found == known().of.end() ? nullptr : found->second;
}

}  // namespace lockstep
