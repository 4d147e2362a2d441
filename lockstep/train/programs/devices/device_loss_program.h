// The shard program of a network with a built-in loss, computed by the streams of a device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/programs/devices/chunk_list.h"
#include "lockstep/train/programs/devices/device_iteration.h"
#include "lockstep/train/programs/loss_program.h"
#include "lockstep/train/programs/shard_exchange.h"

namespace lockstep {

class DeviceLossProgram final : public BuiltInLossProgram {
 public:
  // See BuiltInLossProgram. Also uses options.deterministic. Work is added to `iteration`.
  DeviceLossProgram(Network& network, const TrainingOptions& options,
                    const std::vector<DType>& inputs, std::shared_ptr<DeviceIteration> iteration,
                    bool mixed = false);

  bool augments() const override { return augments_; }

  void prepare(std::span<const IndexRange> shards, int workers) override;
  ShardStaging staging(int64_t rows) const override;
  ShardGradients compute(const ShardTask& task) override;
  void complete(const ShardTask& task) override;
  void wait() override;
  void join() override;

 private:
  // What brings a shard's inputs from the memory that was sent to the plan, and results to the
  // memory that is returned.
  struct Exchange {
    ChunkList inputs, results;
    std::vector<kernels::AugmentImages> images;
  };
  // A run for shards of one shape. Each stream has several, which it uses in turn.
  struct StreamRun {
    PlanRun plan;
    std::map<std::pair<std::byte*, std::byte*>, Exchange> exchanges;  // by the shard's memory
  };

  bool augmented(const ShardPlans::Array& array) const;
  // Of a shard that was sent: the mini-batch may be another one by now.
  ShardShape sent_shape(const ShardTask& task) const;
  // Adds the valid steps, and those that are classified right.
  void count_steps(const ShardTask& task, const ShardShape& shape, const ShardExchange& at,
                   ShardSummary& summary) const;
  void fill(const ShardTask& task, const ShardShape& shape, const ShardExchange& at) const;
  const Exchange& exchange_of(StreamRun& run, const ShardTask& task, const ShardShape& shape,
                              const ShardExchange& at);
  void add_inputs(const PlanRun& run, const Exchange& exchange) const;

  const Device device_;
  const kernels::Choice choice_;
  const kernels::Functions& functions_;
  DeviceMemory& memory_;
  const bool augments_;
  const std::shared_ptr<DeviceIteration> iteration_;
  std::map<ShardShape, std::vector<StreamRun>> runs_;  // by shape, then by stream
};

}  // namespace lockstep
