// Updates on the CPU in one pass over memory: threads divide update ranges of all parameters. The
// division, the threshold of elements, the solver, the packed copies and the digest of an update
// range follow each other while its elements are in the cache.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <vector>

#include "lockstep/base/block_digest.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/iteration/updater.h"
#include "lockstep/train/optimizer/gradient_sums.h"
#include "lockstep/train/optimizer/gradient_threshold.h"
#include "lockstep/train/profile/iteration_profile.h"
#include "lockstep/train/programs/shard_bundles.h"

namespace lockstep {

class HostUpdater final : public Updater, private GradientUser {
 public:
  // Uses freeze, loss_scale, gradient_threshold and its method of the options. All references and
  // the profile must stay alive.
  HostUpdater(Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options,
              const GradientLayout& layout, const IterationProfile* profile = nullptr);

  void bind(std::byte* gradient_sum) override;
  void apply(const UpdateScalars& scalars, size_t slot) override;
  bool finishes_sums() const override;
  void finish_and_apply(UnfinishedSum& sum, const UpdateScalars& scalars) override;
  float* state(int k) override;
  Digest digest(int64_t iteration, size_t slot) override;
  void values_changed() override { known_.assign(known_.size(), false); }

 private:
  // Elements of a parameter, for one thread.
  struct UpdateRange {
    size_t parameter = 0;
    IndexRange elements;
  };
  // A parameter's update.
  struct Progress {
    BlockDigest digest;
    bool by_parts = false;         // its packed copies are made range by range
    std::atomic<int64_t> left{0};  // update ranges that are not finished
  };

  // How all parameters are cut. Changes only when plans that are compiled later add packed copies.
  struct Cut {
    std::vector<UpdateRange> ranges;
    std::vector<int64_t> counts;  // of update ranges, by parameter
    std::vector<int64_t> parts;   // elements of a part of the packed copies, by parameter; 0: none
    std::vector<bool> by_parts;   // whether packed copies are made range by range
  };

  std::vector<double> limit_gradients(double observations);
  std::vector<int64_t> parts() const;
  Cut cut(bool converted) const;
  // `firsts`: for each update range of the sum the index of its first range here, then the number
  // of all.
  Cut cut(const UnfinishedSum& sum, std::vector<size_t>& firsts) const;
  void begin(const Cut& cut);
  void update(const UpdateRange& range, const UpdateScalars& scalars, bool converted, int thread);
  // `sum`: of these elements alone.
  void update(size_t parameter, const IndexRange& elements, const float* sum,
              const UpdateScalars& scalars, bool hashed, int thread);
  void hash(size_t parameter, const IndexRange& elements);
  std::span<const float* const> arrays(size_t parameter) const override {
    return arrays_[parameter];
  }
  void use(const ParameterBlock& block, const float* sum, int thread) override;
  void find_frozen(const UpdateScalars& scalars);
  // After an update: digests and packed copies of frozen parameters stay valid.
  void note_known() { known_ = frozen_; }
  bool unchanged(size_t parameter) const { return frozen_[parameter] && known_[parameter]; }
  // After the last element of an update range.
  void finish(const UpdateRange& range, int thread);

  Network& network_;
  Solver& solver_;
  ThreadPool& pool_;
  const GradientLayout& layout_;
  const IterationProfile* const profile_;
  const GradientThreshold threshold_;
  const double loss_scale_;
  std::vector<int64_t> first_epochs_;  // by parameter, in which it learns
  std::vector<bool> frozen_;           // by parameter, in this iteration
  std::vector<bool> known_;            // by parameter: frozen since a digest of it was taken
  std::optional<GradientSums> gradients_;
  Cut cuts_[2];                    // by whether all sums are converted; made when needed
  Cut cut_of_unfinished_;          // update ranges as in an unfinished sum
  std::vector<size_t> firsts_;     // of it
  UpdateScalars scalars_;          // of an unfinished sum
  std::deque<Progress> progress_;  // by parameter
  std::vector<std::vector<const float*>> arrays_;  // of each parameter: itself, the solver's state
  std::vector<std::vector<float>> limited_;        // gradients within the threshold, by thread
  std::vector<Digest> digests_;                    // by parameter
};

}  // namespace lockstep
