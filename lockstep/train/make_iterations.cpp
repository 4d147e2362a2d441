#include "lockstep/train/make_iterations.h"

#include "lockstep/base/error.h"
#include "lockstep/train/loop/local_iterations.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/workers/worker_iterations.h"

namespace lockstep {

std::unique_ptr<Iterations> make_iterations(const IterationsSetup& setup,
                                            const Call<TrainingProblem>* problem,
                                            const TrainingWorkers& workers) {
  if (setup.options.workers.count == 0) return std::make_unique<LocalIterations>(setup);
  if (setup.profile) {
    throw Unsupported("[training] profiles are supported only without worker processes",
                      "set workers = 0");
  }
  return std::make_unique<WorkerIterations>(setup, *problem, workers);
}

}  // namespace lockstep
