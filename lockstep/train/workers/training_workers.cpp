#include "lockstep/train/workers/training_workers.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

std::shared_ptr<detail::PoolCore> pool_for_training(TrainingOptions& options,
                                                    std::shared_ptr<detail::PoolCore> pool) {
  options.check();
  if (!options.workers.hosts.empty()) return nullptr;  // the hosts determine the workers
  if (!pool) pool = detail::open_process_pool();
  const int64_t present = pool ? pool->size() : 0;
  if (present == 0) return nullptr;
  if (present < options.workers.count) {
    options.workers.count = present;
    std::vector<double>& loads = options.workers.load;
    loads.resize(std::min(loads.size(), static_cast<size_t>(present)));
    if (std::none_of(loads.begin(), loads.end(), [](double load) { return load > 0; })) loads = {};
  }
  return pool;
}

std::vector<Device> devices_of_workers(const std::string& text, Device resolved) {
  std::vector<Device> devices;
  if (text == "cuda") {
    for (const auto& info : kernels::list_devices()) {
      if (info.usable()) devices.push_back(info.device);
    }
  }
  return devices.empty() ? std::vector<Device>{resolved} : devices;
}

OnDevice::OnDevice(Network& network, Device device) : network_(network), before_(network.device()) {
  if (device != before_) network.to(device);
}

OnDevice::~OnDevice() {
  if (network_.device() == before_) return;
  try {
    network_.to(before_);
  } catch (const std::exception&) {
    // A device that fails here has failed before, and that error was reported.
  }
}

}  // namespace lockstep
