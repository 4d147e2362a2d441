// Chooses how the iterations of a training are computed.
#pragma once

#include <memory>

#include "lockstep/parallel/process/function.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/workers/training_workers.h"

namespace lockstep {

// Iterations by options.workers.count processes, each of which makes the problem, or by threads of
// this process if that is 0. Without workers `problem` may be null. Throws Unsupported for a
// profile with workers; InvalidArgument for workers in a program without a Runtime.
std::unique_ptr<Iterations> make_iterations(const IterationsSetup& setup,
                                            const Call<TrainingProblem>* problem,
                                            const TrainingWorkers& workers);

}  // namespace lockstep
