// The tensors of mini-batches, on the CPU or copied ahead to another device.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/device/device_memory.h"

namespace lockstep {

// Copies use streams of their own, so that they run concurrently with the work in the device's
// default stream.
class MiniBatchTensors {
 public:
  // `device` as in MiniBatchQueueOptions. `ahead`: the largest number of finished mini-batches that
  // wait for the caller. Throws like resolve_device().
  MiniBatchTensors(const std::string& device, size_t ahead);

  // Makes the tensors of the finished mini-batch number `number`. Threads may make different
  // mini-batches at the same time.
  void make(MiniBatch& batch, int64_t number);
  // Makes the default stream wait for the copies of that mini-batch.
  void join(int64_t number);

 private:
  Tensor on_device(const RowArray& array, void* stream) const;
  void* stream_of(int64_t number) const;

  const Device device_;
  DeviceMemory* memory_ = nullptr;  // null on the CPU
  std::vector<std::unique_ptr<DeviceStream>> streams_;
};

}  // namespace lockstep
