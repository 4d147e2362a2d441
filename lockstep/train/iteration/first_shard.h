// Compares a shard that a device has computed with the CPU's result, before the first update of a
// training. A self-test of kernels knows their shapes only in part; this one uses the training's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/programs/loss_program.h"

namespace lockstep {

enum class Precision : uint8_t;  // train/options/options.h
struct TrainingOptions;

// How far a device's results may be from those of the CPU in fp32. Gradients are compared by
// parameter: the Euclidean norm of the difference, and the element that differs most.
struct FirstShardBounds {
  double loss = 0;      // share of the loss
  double gradient = 0;  // share of the norm of the parameter's gradient
  double element = 0;   // for one element: share of the largest element of the gradient
  double all = 0;       // share of the norm of all gradients, added to both
  // Where this is not enough, the CPU computes the shard twice more, with parameters that are
  // changed by this share and with rounding in other directions. kTolerated times the larger of
  // the differences that result is added. So results that depend on rounding much may differ more.
  double change = 0;
  static constexpr double kTolerated = 4;

  // For TrainingOptions::precision.
  static FirstShardBounds of(Precision precision);
};

// Computes a shard of the mini-batch three times on the program's device (directly, while it is
// recorded, from the recording), which must give the same bits if `options.deterministic`, and on
// the CPU in fp32 with a copy of the network, its loss and its augmentation. Returns a sentence for
// the user: how well they agree, or why the CPU could not compute the shard. Throws Error naming
// the parameter, the bound and the difference if they do not agree. Changes nothing that a training
// depends on. `program`: of the network, has the mini-batch and is prepared for it. `inputs`: types
// of the inputs. `loss`: of the user; null: the network's. Uses one thread.
std::string compare_first_shard(const Network& network, MiniBatchProgram& program,
                                const TrainingOptions& options, const std::vector<DType>& inputs,
                                const TrainingLoss* loss, const MiniBatch& batch,
                                const ShardTask& task);

}  // namespace lockstep
