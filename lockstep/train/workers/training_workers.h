// Chooses the pool and the devices that compute a training. Functions are thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/nn/network.h"
#include "lockstep/parallel/pool/pool_core.h"

namespace lockstep {

struct TrainingOptions;

struct TrainingWorkers {
  std::shared_ptr<detail::PoolCore> pool = {};   // null: a pool is opened for the training
  std::vector<Device> devices = {};              // assigned to workers in turn
  std::function<std::vector<int>()> slots = {};  // as TrainingControl::workers
};

// Returns `pool`, else the open pool of processes; null if there is none, or if the options name
// hosts. If the pool has fewer workers than the options request, options.workers.count is lowered
// to its size. Loads of missing workers are ignored; if no load remains, all workers have the same
// load. Throws InvalidArgument for options that were invalid before this change.
std::shared_ptr<detail::PoolCore> pool_for_training(TrainingOptions& options,
                                                    std::shared_ptr<detail::PoolCore> pool = {});

// The devices for the text of options.device and the device that it was resolved to. "cuda" without
// a number means all usable GPUs.
std::vector<Device> devices_of_workers(const std::string& text, Device resolved);

// Moves a network to another device during its lifetime. One thread at a time.
class OnDevice {
 public:
  // Throws what Network::to() throws.
  OnDevice(Network& network, Device device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  Network& network_;
  const Device before_;
};

}  // namespace lockstep
