#include "lockstep/engine/device/device_group.h"

#include <map>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

struct Known {
  std::mutex mutex;
  std::map<Device, std::shared_ptr<DeviceGroups>> of;
};

Known& known() {
  static auto* instance = new Known;
  return *instance;
}

}  // namespace

void register_device_groups(Device device, std::shared_ptr<DeviceGroups> groups) {
  const std::lock_guard lock(known().mutex);
  known().of[device] = std::move(groups);
}

std::shared_ptr<DeviceGroups> device_groups_of(Device device) {
  const std::lock_guard lock(known().mutex);
  const auto found = known().of.find(device);
  return found == known().of.end() ? nullptr : found->second;
}

}  // namespace lockstep
