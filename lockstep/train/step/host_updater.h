// Updates on the CPU. Threads share the work by parameter.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/optimizer/gradient_sums.h"
#include "lockstep/train/optimizer/gradient_threshold.h"
#include "lockstep/train/profile/step_profile.h"
#include "lockstep/train/step/updater.h"

namespace lockstep {

class HostUpdater final : public Updater {
 public:
  // Uses freeze, loss_scale, gradient_threshold and its method of the options. All references and
  // the profile must stay alive.
  HostUpdater(Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options,
              const GradientLayout& layout, const StepProfile* profile = nullptr);

  void bind(std::byte* gradient_sum) override;
  void apply(const UpdateScalars& scalars, size_t slot) override;
  float* state(int k) override;
  Digest digest(int64_t iteration, size_t slot) override;

 private:
  std::vector<double> limit_gradients(double observations);

  Network& network_;
  Solver& solver_;
  ThreadPool& pool_;
  const GradientLayout& layout_;
  const StepProfile* const profile_;
  const GradientThreshold threshold_;
  const double loss_scale_;
  std::vector<bool> frozen_;  // by parameter
  std::optional<GradientSums> gradients_;
  std::vector<Digest> digests_;  // by parameter
};

}  // namespace lockstep
