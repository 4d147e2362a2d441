// Batches of an evaluation on a device. Several are under way, so that the host prepares one while
// the device computes another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/device/recording.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/programs/devices/chunk_list.h"

namespace lockstep {

// Bytes of one observation.
struct BatchRow {
  std::vector<size_t> inputs;
  size_t wanted = 0;    // its label or target; sent if the plan computes the loss
  bool losses = false;  // whether the plan computes the loss
  size_t scores = 0;
};

// Each slot holds one batch. The host sends it as one block and gets its results as another;
// between them is the forward run, which is recorded together with the copies within the device.
// One thread at a time.
class DeviceBatches {
 public:
  static constexpr size_t kMostSlots = 3;
  static constexpr int64_t kMostRows = 512;
  // Memory that the operands of one op may need, in bytes.
  static constexpr size_t kMostBytes = size_t{1} << 30;

  // The rows of a batch: at least `rows`, for which the graph was made, and at most kMostRows. They
  // depend on the graph alone, because libraries choose algorithms by shapes.
  static int64_t rows_for(const Graph& graph, int64_t rows);

  // The plan's outputs are the scores and, if it computes them, the losses; its last input is then
  // for labels or targets. Makes one slot. The network must stay alive.
  DeviceBatches(Network& network, std::shared_ptr<const Plan> plan, int64_t rows,
                const BatchRow& row);
  ~DeviceBatches();
  DeviceBatches(const DeviceBatches&) = delete;
  DeviceBatches& operator=(const DeviceBatches&) = delete;

  // Makes further slots, at most one for each of `batches` and kMostSlots in all. Stops when the
  // device's free memory is less than four times that of a slot: a training needs some, too.
  void make_slots(int64_t batches);
  size_t slots() const { return slots_.size(); }
  // The host's memory of a slot: inputs and labels or targets, which the caller fills while no
  // batch of the slot is under way, and the results.
  std::vector<uint8_t*> inputs(size_t slot) const;
  void* wanted(size_t slot) const;
  const float* scores(size_t slot) const;
  const float* losses(size_t slot) const;

  // Enqueues the batch of number `slot`, ordered after the default stream.
  void begin(size_t slot);
  // Waits for the slot's batch, if there is one.
  void wait(size_t slot) const;

 private:
  // A part of a block.
  struct Part {
    size_t offset = 0, bytes = 0;
  };
  struct Slot;

  Network& network_;
  const std::shared_ptr<const Plan> plan_;
  DeviceMemory& memory_;
  const kernels::Functions& functions_;
  const bool has_losses_;
  // The host's block; the first `sent_` bytes are sent. Then the device's block.
  std::vector<Part> inputs_;
  Part wanted_;
  size_t filled_ = 0, sent_ = 0;
  Part scores_, losses_;
  size_t returned_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace lockstep
