// Makes the training step for a network's device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/iteration/training_iteration.h"

namespace lockstep {

// Uses mini_batch_size, shard_size, seed, streams, deterministic, check_frequency, precision,
// gradient_threshold and its method, class_weights, freeze and compare_first of the resolved
// options. `inputs`: as for ShardPlans. `loss`: replaces the network's loss; null: the network's.
// `profiler`: records the threads' time; null: none. `notice`: receives how the first shard
// compares with the CPU's (gpu/first_shard.h). `mixed`: as for ShardPlans. `keeping`: results of
// frozen layers, on the CPU with the network's loss. Network, solver, pool and loss must stay
// alive. Throws InvalidArgument for a network that does not fit its loss; Unsupported for a
// profiler on a GPU and for a precision that the device does not support.
std::unique_ptr<TrainingIteration> make_training_iteration(
    Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options,
    std::vector<DType> inputs = {}, const TrainingLoss* loss = nullptr,
    IterationProfiler* profiler = nullptr, std::function<void(const std::string&)> notice = {},
    bool mixed = false, KeepingSetup keeping = {});

}  // namespace lockstep
