#include "lockstep/train/iteration/host_updater.h"

#include <algorithm>
#include <span>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/interface/update_ranges.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/iteration/shard_executor.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {
namespace {

// Elements of an update range, unless a part of a packed copy has more. An update range takes some
// microseconds.
constexpr int64_t kUpdateRange = int64_t{1} << 14;
// Elements that are updated and hashed together, in the first cache.
constexpr int64_t kStep = int64_t{1} << 11;

}  // namespace

HostUpdater::HostUpdater(Network& network, Solver& solver, ThreadPool& pool,
                         const TrainingOptions& options, const GradientLayout& layout,
                         const IterationProfile* profile)
    : network_(network),
      solver_(solver),
      pool_(pool),
      layout_(layout),
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

void HostUpdater::bind(std::byte* gradient_sum) {
  gradients_.emplace(layout_, reinterpret_cast<float*>(gradient_sum));
  for (Cut& cut : cuts_) cut = {};
  cut_of_unfinished_ = {};
}

// Limits the norms of the sums, which it brings into row-major order. Returns the divisor of each
// parameter's sum, where the default is the number of observations.
std::vector<double> HostUpdater::limit_gradients(double observations) {
  const auto& functions = kernels::functions_for({});
  const GradientSums& gradients = *gradients_;
  std::vector<std::vector<double>> squares(gradients.size());
  pool_.for_each(static_cast<int64_t>(gradients.size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    const ThreadTimer charge(profile_, thread);
    charge(&IterationAccounts::waiting);
    const size_t p = gradients.by_size()[static_cast<size_t>(i)];
    // Frozen parameters have no gradient sum to limit.
    if (!frozen_[p]) {
      gradients.convert(p);
      charge(&IterationAccounts::layouts);
      squares[p].resize(kernels::norm_blocks(gradients.count(p)));
      functions.block_squares(gradients.values(p), gradients.count(p), squares[p].data(), nullptr);
    }
    mode.check();
    charge(&IterationAccounts::threshold);
  });
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
  return threshold_.divisors(squares, observations);
}

std::vector<int64_t> HostUpdater::parts() const {
  std::vector<int64_t> parts;
  for (size_t p = 0; p < progress_.size(); ++p) {
    parts.push_back(network_.packed().part(static_cast<int>(p)));
  }
  return parts;
}

// Large parameters first, the best order for sharing them among threads. A sum that has to be
// converted is one update range, unless all are `converted` already.
HostUpdater::Cut HostUpdater::cut(bool converted) const {
  const GradientSums& gradients = *gradients_;
  Cut cut;
  cut.counts.assign(gradients.size(), 0);
  cut.parts = parts();
  for (const int64_t part : cut.parts) cut.by_parts.push_back(part > 0);
  for (const size_t p : gradients.by_size()) {
    const auto count = static_cast<int64_t>(gradients.count(p));
    // Update ranges of whole parts.
    const int64_t unit = std::max<int64_t>(cut.parts[p], 1);
    const bool divided = converted || !gradients.converts(p);
    const int64_t most = divided ? (kUpdateRange + unit - 1) / unit * unit : count;
    for (int64_t first = 0; first < count; first += most, ++cut.counts[p]) {
      cut.ranges.push_back({p, {first, std::min(most, count - first)}});
    }
  }
  return cut;
}

HostUpdater::Cut HostUpdater::cut(const UnfinishedSum& sum, std::vector<size_t>& firsts) const {
  const GradientSums& gradients = *gradients_;
  Cut cut;
  cut.counts.assign(gradients.size(), 0);
  cut.parts = parts();
  std::vector<int64_t> elements(gradients.size(), 0);
  std::vector<bool> by_parts(gradients.size(), true);
  firsts.clear();
  for (int64_t i = 0; i < sum.update_ranges(); ++i) {
    firsts.push_back(cut.ranges.size());
    for (const ParameterPart& part : sum.parts(i)) {
      const size_t p = part.parameter;
      cut.ranges.push_back({p, part.elements});
      ++cut.counts[p];
      elements[p] += part.elements.count;
      const int64_t unit = std::max<int64_t>(cut.parts[p], 1);
      const bool ends = part.elements.end() == static_cast<int64_t>(gradients.count(p));
      if (part.elements.first % unit != 0 || (!ends && part.elements.end() % unit != 0)) {
        by_parts[p] = false;
      }
    }
  }
  firsts.push_back(cut.ranges.size());
  for (size_t p = 0; p < gradients.size(); ++p) {
    if (elements[p] != static_cast<int64_t>(gradients.count(p)) || gradients.converts(p)) {
      throw InternalError("[training] the update ranges of the sum do not cover " +
                          network_.parameters()[p].name);
    }
    cut.by_parts.push_back(cut.parts[p] > 0 && by_parts[p]);
  }
  return cut;
}

void HostUpdater::begin(const Cut& cut) {
  for (size_t p = 0; p < progress_.size(); ++p) {
    if (unchanged(p)) continue;
    Progress& progress = progress_[p];
    progress.left = cut.counts[p];
    progress.by_parts = cut.by_parts[p];
    std::vector<std::span<const std::byte>> bytes;
    arrays_[p].clear();
    const auto add = [&](const Tensor& t) {
      arrays_[p].push_back(t.data<float>());
      bytes.push_back(std::as_bytes(std::span(t.data<float>(), gradients_->count(p))));
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

void HostUpdater::update(size_t p, const IndexRange& elements, const float* sum,
                         const UpdateScalars& scalars, bool hashed, int thread) {
  const ThreadTimer charge(profile_, thread);
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

void HostUpdater::update(const UpdateRange& range, const UpdateScalars& scalars, bool converted,
                         int thread) {
  const ThreadTimer charge(profile_, thread);
  charge(&IterationAccounts::waiting);
  const GradientSums& gradients = *gradients_;
  if (!converted && !frozen_[range.parameter]) {
    gradients.convert(range.parameter);
    charge(&IterationAccounts::layouts);
  }
  update(range.parameter, range.elements, gradients.values(range.parameter) + range.elements.first,
         scalars, true, thread);
  finish(range, thread);
}

// A row is hashed at once if it consists of whole blocks of the digest, otherwise with its update
// range.
void HostUpdater::use(const ParameterBlock& block, const float* sum, int thread) {
  if (unchanged(block.parameter)) return;
  const bool whole = block.columns == block.stride;
  const bool hashed = whole || block.stride % kernels::kBlockColumns == 0;
  if (whole) {
    update(block.parameter, {block.first, block.rows * block.columns}, sum, scalars_, hashed,
           thread);
    return;
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    update(block.parameter, {block.first + row * block.stride, block.columns},
           sum + row * block.sum_stride, scalars_, hashed, thread);
  }
  if (hashed || (block.first + block.columns) % block.stride != 0) return;
  const ThreadTimer charge(profile_, thread);
  const int64_t end = block.first + (block.rows - 1) * block.stride + block.columns;
  hash(block.parameter, {end - block.rows * block.stride, block.rows * block.stride});
  charge(&IterationAccounts::digests);
}

void HostUpdater::finish(const UpdateRange& range, int thread) {
  const ThreadTimer charge(profile_, thread);
  const size_t p = range.parameter;
  Progress& progress = progress_[p];
  const auto number = static_cast<int>(p);
  if (progress.by_parts) network_.packed().pack(number, range.elements);
  charge(&IterationAccounts::packing);
  if (progress.left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (!progress.by_parts) network_.packed().pack(number);
  charge(&IterationAccounts::packing);
  digests_[p] = progress.digest.finish();
  charge(&IterationAccounts::digests);
}

void HostUpdater::apply(const UpdateScalars& scalars, size_t) {
  find_frozen(scalars);
  const double observations = scalars.observations * loss_scale_;
  std::vector<double> divisors;
  if (threshold_.wanted() && !threshold_.of_elements()) divisors = limit_gradients(observations);
  const bool converted = !divisors.empty();
  Cut& current = cuts_[converted ? 1 : 0];
  if (current.parts != parts()) current = cut(converted);
  begin(current);
  for_each_in_place(pool_, static_cast<int64_t>(current.ranges.size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    const UpdateRange& range = current.ranges[static_cast<size_t>(i)];
    if (unchanged(range.parameter)) return;
    UpdateScalars own = scalars;
    own.observations = converted ? divisors[range.parameter] : observations;
    update(range, own, converted, thread);
    mode.check();
  });
  note_known();
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
}

// Norms need the whole sum first.
bool HostUpdater::finishes_sums() const { return !threshold_.wanted() || threshold_.of_elements(); }

void HostUpdater::finish_and_apply(UnfinishedSum& sum, const UpdateScalars& scalars) {
  find_frozen(scalars);
  Cut& current = cut_of_unfinished_;
  if (current.parts != parts()) current = cut(sum, firsts_);
  begin(current);
  scalars_ = scalars;
  scalars_.observations = scalars.observations * loss_scale_;
  sum.compute(*this, [&](int64_t i, int thread) {
    const auto at = static_cast<size_t>(i);
    for (size_t k = firsts_[at]; k < firsts_[at + 1]; ++k) {
      if (!unchanged(current.ranges[k].parameter)) finish(current.ranges[k], thread);
    }
  });
  note_known();
  ThreadTimer(profile_, 0)(&IterationAccounts::waiting);
}

float* HostUpdater::state(int k) {
  return network_.state()[static_cast<size_t>(k)].value.data<float>();
}

Digest HostUpdater::digest(int64_t iteration, size_t) {
  return state_digest(network_, digests_, iteration);
}

}  // namespace lockstep
