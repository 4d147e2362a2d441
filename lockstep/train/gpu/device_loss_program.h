// The shard program of a network with a built-in loss, computed by the streams of a device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/gpu/device_augmentation.h"
#include "lockstep/train/gpu/shard_exchange.h"
#include "lockstep/train/programs/loss_program.h"

namespace lockstep {

class DeviceLossProgram final : public BuiltInLossProgram {
 public:
  // See BuiltInLossProgram. Also uses options.deterministic.
  DeviceLossProgram(Network& network, const TrainingOptions& options,
                    const std::vector<DType>& inputs);

  bool augments() const override { return augments_; }

  void prepare(std::span<const IndexRange> shards, int workers) override;
  size_t staging_bytes(int64_t rows) const override { return ShardExchange(plans_, rows).bytes; }
  ShardGradients compute(const ShardTask& task) override;
  void complete(const ShardTask& task) override;
  void wait() override;
  void join() override;

 private:
  // A run for shards of one size. Each stream has several, which it uses in turn.
  struct StreamRun {
    PlanRun plan;
    std::vector<std::optional<DeviceAugmentation>> images;  // by input, if the device augments it
  };

  void set_inputs(StreamRun& run, const ShardTask& task, const ShardExchange& at);

  const Device device_;
  const kernels::Choice choice_;
  const bool augments_;
  std::map<int64_t, std::vector<StreamRun>> runs_;  // by size, then by stream
};

}  // namespace lockstep
