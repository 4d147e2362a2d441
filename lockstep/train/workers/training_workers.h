// Who computes a training, and where. Functions are thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/nn/network.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

struct TrainingWorkers {
  std::shared_ptr<detail::PoolCore> pool = {};  // null: one that is opened for the training
  std::vector<Device> devices = {};             // on which they compute, in turn
};

// The pool of processes that is open; null where there is none, and for options that name hosts.
// Where it has fewer workers than the options want, these become as many; loads of the others fall
// away, and where none is left all have the same. Throws InvalidArgument for options that do not
// hold, as they were.
std::shared_ptr<detail::PoolCore> pool_for_training(TrainingOptions& options);

// For the text of options.device and what it was resolved to: "cuda" without a number stands for
// all GPUs that can be used.
std::vector<Device> devices_of_workers(const std::string& text, Device resolved);

// A network on another device for a while. One thread at a time.
class Moved {
 public:
  // Throws as Network::to().
  Moved(Network& network, Device device);
  ~Moved();
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

 private:
  Network& network_;
  const Device before_;
};

}  // namespace lockstep
