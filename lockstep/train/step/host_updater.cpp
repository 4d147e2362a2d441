#include "lockstep/train/step/host_updater.h"

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {

HostUpdater::HostUpdater(Network& network, Solver& solver, ThreadPool& pool,
                         const TrainingOptions& options, const GradientLayout& layout,
                         const StepProfile* profile)
    : network_(network),
      solver_(solver),
      pool_(pool),
      layout_(layout),
      profile_(profile),
      threshold_{options.solver.gradient_threshold, options.solver.gradient_threshold_method},
      loss_scale_(options.precision.scale_of_losses()),
      digests_(network.parameters().size()) {
  for (const auto& p : network.parameters()) frozen_.push_back(is_frozen(p.name, options.freeze));
}

void HostUpdater::bind(std::byte* gradient_sum) {
  gradients_.emplace(layout_, reinterpret_cast<float*>(gradient_sum));
}

// Brings the sums into row-major order and limits them. Returns the divisor of each parameter's
// sum, where the default is the number of observations.
std::vector<double> HostUpdater::limit_gradients(double observations) {
  const auto& table = kernels::table_for({});
  const GradientSums& gradients = *gradients_;
  std::vector<std::vector<double>> squares(gradients.size());
  pool_.for_each(static_cast<int64_t>(gradients.size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    const ThreadTimer charge(profile_, thread);
    charge(&StepAccounts::waiting);
    const size_t p = gradients.by_size()[static_cast<size_t>(i)];
    gradients.convert(p);
    charge(&StepAccounts::layouts);
    if (frozen_[p]) {
      // Frozen parameters have no gradient sum to limit.
    } else if (threshold_.of_elements()) {
      table.limit(gradients.values(p), gradients.count(p), threshold_.most(observations), nullptr);
    } else {
      squares[p].resize(kernels::norm_blocks(gradients.count(p)));
      table.block_squares(gradients.values(p), gradients.count(p), squares[p].data(), nullptr);
    }
    mode.check();
    charge(&StepAccounts::threshold);
  });
  ThreadTimer(profile_, 0)(&StepAccounts::waiting);
  if (threshold_.of_elements()) return std::vector<double>(gradients.size(), observations);
  return threshold_.divisors(squares, observations);
}

void HostUpdater::apply(const UpdateScalars& scalars, size_t) {
  const double observations = scalars.observations * loss_scale_;
  const GradientSums& gradients = *gradients_;
  std::vector<double> divisors;
  if (threshold_.wanted()) divisors = limit_gradients(observations);
  pool_.for_each(static_cast<int64_t>(gradients.size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    const ThreadTimer charge(profile_, thread);
    charge(&StepAccounts::waiting);
    const size_t p = gradients.by_size()[static_cast<size_t>(i)];
    UpdateScalars own = scalars;
    own.observations = divisors.empty() ? observations : divisors[p];
    if (divisors.empty()) {
      gradients.convert(p);
      charge(&StepAccounts::layouts);
    }
    solver_.update(p, gradients.values(p), own);
    charge(&StepAccounts::solver);
    network_.packed().pack(static_cast<int>(p));
    charge(&StepAccounts::packing);
    // Digests are computed while the values are in the cache.
    digests_[p] = parameter_digest(network_, solver_, p);
    mode.check();
    charge(&StepAccounts::digests);
  });
  ThreadTimer(profile_, 0)(&StepAccounts::waiting);
}

float* HostUpdater::state(int k) {
  return network_.state()[static_cast<size_t>(k)].value.data<float>();
}

Digest HostUpdater::digest(int64_t iteration, size_t) {
  return state_digest(network_, digests_, iteration);
}

}  // namespace lockstep
