#include "lockstep/train/iteration/host_updater.h"

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/interface/update_ranges.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/iteration/memory_sum.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {
namespace {

// Elements that are updated and hashed together, in the first cache.
constexpr int64_t kStep = int64_t{1} << 11;
// More sets of update ranges than a training changes between.
constexpr size_t kKeptCuts = 8;

}  // namespace

HostUpdater::HostUpdater(Network& network, Solver& solver, ThreadPool& pool,
                         const TrainingOptions& options, GradientSum& sum,
                         const IterationProfile* profile)
    : network_(network),
      solver_(solver),
      pool_(pool),
      sum_(sum),
      profile_(profile),
      threshold_{options.solver.gradient_threshold, options.solver.gradient_threshold_method},
      loss_scale_(options.precision.scale_of_losses()),
      progress_(network.parameters().size()),
      arrays_(network.parameters().size()),
      limited_(static_cast<size_t>(pool.size())),
      digests_(network.parameters().size()) {
  for (const auto& p : network.parameters()) {
    first_epochs_.push_back(first_learning_epoch(p.name, options));
  }
  frozen_.resize(first_epochs_.size());
  known_.resize(first_epochs_.size());
}

void HostUpdater::find_frozen(const UpdateScalars& scalars) {
  for (size_t p = 0; p < frozen_.size(); ++p) {
    frozen_[p] = scalars.number_since(first_epochs_[p]) < 1;
  }
}

// Limits the norms of the sums. Returns the divisor of each parameter's sum, where the default is
// the number of observations.
std::vector<double> HostUpdater::limit_gradients(double observations) {
  const auto& functions = kernels::functions_for({});
  MemorySum& sum = sum_.in_memory();
  std::vector<std::vector<double>> squares(frozen_.size());
  pool_.for_each(static_cast<int64_t>(squares.size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    const ThreadTimer charge(profile_, thread);
    charge(&IterationAccounts::waiting);
    const size_t p = sum.by_size()[static_cast<size_t>(i)];
    // Frozen parameters have no gradient sum to limit.
    if (!frozen_[p]) {
      const float* const values = sum.converted(p);
      charge(&IterationAccounts::layouts);
      squares[p].resize(kernels::norm_blocks(sum.count(p)));
      functions.block_squares(values, sum.count(p), squares[p].data(), nullptr);
    }
    mode.check();
    charge(&IterationAccounts::threshold);
  });
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
  return threshold_.divisors(squares, observations);
}

HostUpdater::Cut HostUpdater::cut(std::shared_ptr<const UpdateRanges> ranges) const {
  const size_t parameters = progress_.size();
  Cut cut;
  cut.counts.assign(parameters, 0);
  for (size_t p = 0; p < parameters; ++p) cut.units.push_back(unit(p));
  std::vector<int64_t> elements(parameters, 0);
  std::vector<bool> aligned(parameters, true);
  const auto count = [this](size_t p) { return network_.parameters()[p].value.shape().elements(); };
  for (const auto& [p, part] : ranges->parts) {
    ++cut.counts[p];
    elements[p] += part.count;
    const int64_t unit = std::max<int64_t>(cut.units[p], 1);
    const bool ends = part.end() == count(p);
    if (part.first % unit != 0 || (!ends && part.end() % unit != 0)) aligned[p] = false;
  }
  for (size_t p = 0; p < parameters; ++p) {
    if (elements[p] != count(p)) {
      throw InternalError("[training] the update ranges of the sum do not cover " +
                          network_.parameters()[p].name);
    }
    cut.by_parts.push_back(cut.units[p] > 0 && aligned[p]);
  }
  cut.ranges = std::move(ranges);
  return cut;
}

// Plans that are compiled later may add packed copies, which changes units.
const HostUpdater::Cut& HostUpdater::present_cut() {
  std::shared_ptr<const UpdateRanges> ranges = sum_.ranges(*this);
  const auto same = [&](const Cut& cut) {
    if (cut.ranges != ranges) return false;
    for (size_t p = 0; p < cut.units.size(); ++p) {
      if (cut.units[p] != unit(p)) return false;
    }
    return true;
  };
  const auto known = std::find_if(cuts_.begin(), cuts_.end(), same);
  if (known != cuts_.end()) return *known;
  if (cuts_.size() == kKeptCuts) cuts_.clear();
  return cuts_.emplace_back(cut(std::move(ranges)));
}

void HostUpdater::begin(const Cut& cut) {
  for (size_t p = 0; p < progress_.size(); ++p) {
    if (unchanged(p)) continue;
    Progress& progress = progress_[p];
    progress.left = cut.counts[p];
    progress.by_parts = cut.by_parts[p];
    std::vector<std::span<const std::byte>> bytes;
    arrays_[p].clear();
    const auto count = static_cast<size_t>(network_.parameters()[p].value.shape().elements());
    const auto add = [&](const Tensor& t) {
      arrays_[p].push_back(t.data<float>());
      bytes.push_back(std::as_bytes(std::span(t.data<float>(), count)));
    };
    add(network_.parameters()[p].value);
    for (const Tensor& array : solver_.state(p)) add(array);
    progress.digest.begin(bytes);
  }
}

void HostUpdater::hash(size_t p, const IndexRange& elements) {
  for (size_t a = 0; a < arrays_[p].size(); ++a) {
    progress_[p].digest.add(a, static_cast<size_t>(elements.first) * sizeof(float),
                            static_cast<size_t>(elements.count) * sizeof(float));
  }
}

void HostUpdater::update(size_t p, const IndexRange& elements, const float* sum, bool hashed,
                         int thread) {
  const ThreadTimer charge(profile_, thread);
  UpdateScalars scalars = scalars_;
  scalars.observations = divisors_[p];
  std::vector<float>& limited = limited_[static_cast<size_t>(thread)];
  for (int64_t first = elements.first; first < elements.end(); first += kStep) {
    const IndexRange part{first, std::min(kStep, elements.end() - first)};
    const float* values = sum + (first - elements.first);
    if (threshold_.wanted() && threshold_.of_elements() && !frozen_[p]) {
      limited.assign(values, values + part.count);
      kernels::functions_for({}).limit(limited.data(), limited.size(),
                                       threshold_.most(scalars.observations), nullptr);
      values = limited.data();
      charge(&IterationAccounts::threshold);
    }
    solver_.update(p, part, values, scalars);
    charge(&IterationAccounts::solver);
    if (!hashed) continue;
    hash(p, part);
    charge(&IterationAccounts::digests);
  }
}

// A row is hashed at once if it consists of whole blocks of the digest, otherwise with its update
// range.
void HostUpdater::use(const ParameterBlock& block, const float* sum, int thread) {
  if (unchanged(block.parameter)) return;
  const bool whole = block.columns == block.stride;
  const bool hashed = whole || block.stride % kernels::kBlockColumns == 0;
  if (whole) {
    update(block.parameter, {block.first, block.rows * block.columns}, sum, hashed, thread);
    return;
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    update(block.parameter, {block.first + row * block.stride, block.columns},
           sum + row * block.sum_stride, hashed, thread);
  }
  if (hashed || (block.first + block.columns) % block.stride != 0) return;
  const ThreadTimer charge(profile_, thread);
  const int64_t end = block.first + (block.rows - 1) * block.stride + block.columns;
  hash(block.parameter, {end - block.rows * block.stride, block.rows * block.stride});
  charge(&IterationAccounts::digests);
}

void HostUpdater::end(int64_t range, int thread) {
  for (const ParameterPart& part : ranges_->of(range)) {
    if (!unchanged(part.parameter)) finish(part, thread);
  }
}

void HostUpdater::finish(const ParameterPart& part, int thread) {
  const ThreadTimer charge(profile_, thread);
  const size_t p = part.parameter;
  Progress& progress = progress_[p];
  const auto number = static_cast<int>(p);
  if (progress.by_parts) network_.packed().pack(number, part.elements);
  charge(&IterationAccounts::packing);
  if (progress.left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (!progress.by_parts) network_.packed().pack(number);
  charge(&IterationAccounts::packing);
  digests_[p] = progress.digest.finish();
  charge(&IterationAccounts::digests);
}

void HostUpdater::apply(const UpdateScalars& scalars, size_t) {
  find_frozen(scalars);
  scalars_ = scalars;
  const double observations = scalars.observations * loss_scale_;
  // Norms need the whole sum first.
  if (threshold_.wanted() && !threshold_.of_elements()) {
    divisors_ = limit_gradients(observations);
  } else {
    divisors_.assign(progress_.size(), observations);
  }
  const Cut& cut = present_cut();
  ranges_ = cut.ranges.get();
  begin(cut);
  sum_.run(*this);
  note_known();
}

float* HostUpdater::state(int k) {
  return network_.state()[static_cast<size_t>(k)].value.data<float>();
}

Digest HostUpdater::digest(int64_t iteration, size_t) {
  return state_digest(network_, digests_, iteration);
}

}  // namespace lockstep
