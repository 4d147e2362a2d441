#include "lockstep/train/step/host_updater.h"

#include <algorithm>
#include <span>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {
namespace {

// Elements of a piece, unless a part of a packed copy has more. A piece takes some microseconds.
constexpr int64_t kPiece = int64_t{1} << 14;
// Elements that are updated and hashed together, in the first cache.
constexpr int64_t kStep = int64_t{1} << 11;

}  // namespace

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
      progress_(network.parameters().size()),
      limited_(static_cast<size_t>(pool.size())),
      digests_(network.parameters().size()) {
  for (const auto& p : network.parameters()) frozen_.push_back(is_frozen(p.name, options.freeze));
}

void HostUpdater::bind(std::byte* gradient_sum) {
  gradients_.emplace(layout_, reinterpret_cast<float*>(gradient_sum));
  for (Cut& cut : cuts_) cut = {};
}

// Limits the norms of the sums, which it brings into row-major order. Returns the divisor of each
// parameter's sum, where the default is the number of observations.
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
    if (!frozen_[p]) {  // frozen parameters have no gradient sum to limit
      squares[p].resize(kernels::norm_blocks(gradients.count(p)));
      table.block_squares(gradients.values(p), gradients.count(p), squares[p].data(), nullptr);
    }
    mode.check();
    charge(&StepAccounts::threshold);
  });
  ThreadTimer(profile_, 0)(&StepAccounts::waiting);
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
// converted is one piece, unless all are `converted` already.
HostUpdater::Cut HostUpdater::cut(bool converted) const {
  const GradientSums& gradients = *gradients_;
  Cut cut;
  cut.counts.assign(gradients.size(), 0);
  cut.parts = parts();
  for (const size_t p : gradients.by_size()) {
    const auto count = static_cast<int64_t>(gradients.count(p));
    // Pieces of whole parts.
    const int64_t unit = std::max<int64_t>(cut.parts[p], 1);
    const bool divided = converted || !gradients.converts(p);
    const int64_t most = divided ? (kPiece + unit - 1) / unit * unit : count;
    for (int64_t first = 0; first < count; first += most, ++cut.counts[p]) {
      cut.pieces.push_back({p, {first, std::min(most, count - first)}});
    }
  }
  return cut;
}

void HostUpdater::begin(const Cut& cut) {
  for (size_t p = 0; p < progress_.size(); ++p) {
    Progress& progress = progress_[p];
    progress.left = cut.counts[p];
    progress.by_parts = cut.parts[p] > 0;
    std::vector<std::span<const std::byte>> arrays;
    const auto add = [&](const Tensor& t) {
      arrays.push_back(std::as_bytes(std::span(t.data<float>(), gradients_->count(p))));
    };
    add(network_.parameters()[p].value);
    for (const Tensor& array : solver_.state(p)) add(array);
    progress.digest.begin(arrays);
    arrays_ = arrays.size();
  }
}

// A thread has the same pieces in every iteration, so that parameters and the solver's state stay
// in the caches of its core, until it takes over some that another thread has not begun.
void HostUpdater::for_each_piece(const Cut& cut,
                                 const std::function<void(const Piece&, int thread)>& body) {
  struct alignas(64) Begun {
    std::atomic<size_t> pieces{0};
  };
  const auto threads = static_cast<size_t>(pool_.used());
  std::vector<Begun> begun(threads);
  pool_.run([&](int thread) {
    for (size_t k = 0; k < threads; ++k) {
      const size_t owner = (static_cast<size_t>(thread) + k) % threads;
      std::atomic<size_t>& next = begun[owner].pieces;
      for (size_t i = owner + threads * next++; i < cut.pieces.size();
           i = owner + threads * next++) {
        body(cut.pieces[i], thread);
      }
    }
  });
}

void HostUpdater::update(const Piece& piece, const UpdateScalars& scalars, bool converted,
                         int thread) {
  const ThreadTimer charge(profile_, thread);
  charge(&StepAccounts::waiting);
  const GradientSums& gradients = *gradients_;
  const size_t p = piece.parameter;
  Progress& progress = progress_[p];
  if (!converted) {
    gradients.convert(p);
    charge(&StepAccounts::layouts);
  }
  std::vector<float>& limited = limited_[static_cast<size_t>(thread)];
  for (int64_t first = piece.elements.first; first < piece.elements.end(); first += kStep) {
    const IndexRange part{first, std::min(kStep, piece.elements.end() - first)};
    const auto count = static_cast<size_t>(part.count);
    const float* sum = gradients.values(p) + part.first;
    if (threshold_.wanted() && threshold_.of_elements() && !frozen_[p]) {
      limited.assign(sum, sum + part.count);
      kernels::table_for({}).limit(limited.data(), count, threshold_.most(scalars.observations),
                                   nullptr);
      sum = limited.data();
      charge(&StepAccounts::threshold);
    }
    solver_.update(p, part, sum, scalars);
    charge(&StepAccounts::solver);
    for (size_t a = 0; a < arrays_; ++a) {
      progress.digest.add(a, static_cast<size_t>(part.first) * sizeof(float),
                          count * sizeof(float));
    }
    charge(&StepAccounts::digests);
  }
  if (progress.by_parts) network_.packed().pack(static_cast<int>(p), piece.elements);
  charge(&StepAccounts::packing);
  if (progress.left.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(p, thread);
}

void HostUpdater::finish(size_t p, int thread) {
  const ThreadTimer charge(profile_, thread);
  if (!progress_[p].by_parts) network_.packed().pack(static_cast<int>(p));
  charge(&StepAccounts::packing);
  digests_[p] = progress_[p].digest.finish();
  charge(&StepAccounts::digests);
}

void HostUpdater::apply(const UpdateScalars& scalars, size_t) {
  const double observations = scalars.observations * loss_scale_;
  std::vector<double> divisors;
  if (threshold_.wanted() && !threshold_.of_elements()) divisors = limit_gradients(observations);
  const bool converted = !divisors.empty();
  Cut& pieces = cuts_[converted ? 1 : 0];
  if (pieces.parts != parts()) pieces = cut(converted);
  begin(pieces);
  for_each_piece(pieces, [&](const Piece& piece, int thread) {
    const ArithmeticMode mode;
    UpdateScalars own = scalars;
    own.observations = converted ? divisors[piece.parameter] : observations;
    update(piece, own, converted, thread);
    mode.check();
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
