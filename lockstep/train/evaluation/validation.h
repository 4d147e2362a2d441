// Validation during training. Functions are not thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/input/training_images.h"

namespace lockstep {

// The Evaluator for validation during training; null without validation images. The network and the
// pool must outlive it. `keeping`: results of frozen layers.
std::unique_ptr<Evaluator> make_validation(Network& network, const TrainingImages& images,
                                           const TrainingData& data, const TrainingOptions& options,
                                           ThreadPool& pool, std::vector<MetricPtr> metrics,
                                           EvaluationKeeping keeping = {});

}  // namespace lockstep
