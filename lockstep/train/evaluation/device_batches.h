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

// Each place holds one batch. The host sends it as one block and gets its results as another;
// between them is the forward run, which is recorded together with the copies within the device.
// One thread at a time.
class DeviceBatches {
 public:
  static constexpr size_t kMostPlaces = 3;
  static constexpr int64_t kMostRows = 512;
  // Memory that the operands of one op may need, in bytes.
  static constexpr size_t kMostBytes = size_t{1} << 30;

  // The rows of a batch: at least `rows`, for which the graph was made, and at most kMostRows. They
  // depend on the graph alone, because libraries choose algorithms by shapes.
  static int64_t rows_for(const Graph& graph, int64_t rows);

  // The plan's outputs are the scores and, if it computes them, the losses; its last input is then
  // for labels or targets. Makes one place. The network must stay alive.
  DeviceBatches(Network& network, std::shared_ptr<const Plan> plan, int64_t rows,
                const BatchRow& row);
  ~DeviceBatches();
  DeviceBatches(const DeviceBatches&) = delete;
  DeviceBatches& operator=(const DeviceBatches&) = delete;

  // Makes further places, at most one for each of `batches` and kMostPlaces in all. Stops when the
  // device's free memory is less than four times that of a place: a training needs some, too.
  void make_places(int64_t batches);
  size_t places() const { return places_.size(); }
  // The host's memory of a place: inputs and labels or targets, which the caller fills while no
  // batch of the place is under way, and the results.
  std::vector<uint8_t*> inputs(size_t place) const;
  void* wanted(size_t place) const;
  const float* scores(size_t place) const;
  const float* losses(size_t place) const;

  // Enqueues the batch of slot `place`, ordered after the default stream.
  void begin(size_t place);
  // Waits for the place's batch, if there is one.
  void wait(size_t place) const;

 private:
  // A part of a block.
  struct Part {
    size_t offset = 0, bytes = 0;
  };
  struct Place;

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
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace lockstep
