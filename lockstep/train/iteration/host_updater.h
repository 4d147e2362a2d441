// Updates on the CPU in one pass over memory: threads divide update ranges of all parameters. The
// division, the threshold of elements, the solver, the packed copies and the digest of an update
// range follow each other while its elements are in the cache.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "lockstep/base/block_digest.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/iteration/updater.h"
#include "lockstep/train/optimizer/gradient_sum.h"
#include "lockstep/train/optimizer/gradient_threshold.h"
#include "lockstep/train/profile/iteration_profile.h"

namespace lockstep {

class HostUpdater final : public Updater, private GradientSink {
 public:
  // Updates from `sum`. Uses freeze, unfreeze, loss_scale, gradient_threshold and its method of the
  // options. All references and the profile must stay alive.
  HostUpdater(Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options,
              GradientSum& sum, const IterationProfile* profile = nullptr);

  void apply(const UpdateScalars& scalars, size_t slot) override;
  float* state(int k) override;
  Digest digest(int64_t iteration, size_t slot) override;
  void values_changed() override { known_.assign(known_.size(), false); }

 private:
  // A parameter's update.
  struct Progress {
    BlockDigest digest;
    bool by_parts = false;         // its packed copies are made range by range
    std::atomic<int64_t> left{0};  // update ranges that are not finished
  };

  // What follows from the sum's update ranges.
  struct Cut {
    std::shared_ptr<const UpdateRanges> ranges;
    std::vector<int64_t> units;   // elements of a part of the packed copies, by parameter; 0: none
    std::vector<int64_t> counts;  // of update ranges, by parameter
    std::vector<bool> by_parts;   // whether packed copies are made range by range
  };

  std::vector<double> limit_gradients(double observations);
  Cut cut(std::shared_ptr<const UpdateRanges> ranges) const;
  const Cut& present_cut();
  void begin(const Cut& cut);
  // `sum`: of these elements alone.
  void update(size_t parameter, const IndexRange& elements, const float* sum, bool hashed,
              int thread);
  void hash(size_t parameter, const IndexRange& elements);
  bool reads(size_t parameter) const override { return !frozen_[parameter]; }
  int64_t unit(size_t parameter) const override {
    return network_.packed().part(static_cast<int>(parameter));
  }
  std::span<const float* const> arrays(size_t parameter) const override {
    return arrays_[parameter];
  }
  void use(const ParameterBlock& block, const float* sum, int thread) override;
  void end(int64_t range, int thread) override;
  void find_frozen(const UpdateScalars& scalars);
  // After an update: digests and packed copies of frozen parameters stay valid.
  void note_known() { known_ = frozen_; }
  bool unchanged(size_t parameter) const { return frozen_[parameter] && known_[parameter]; }
  // After the last element of a part of an update range.
  void finish(const ParameterPart& part, int thread);

  Network& network_;
  Solver& solver_;
  ThreadPool& pool_;
  GradientSum& sum_;
  const IterationProfile* const profile_;
  const GradientThreshold threshold_;
  const double loss_scale_;
  std::vector<int64_t> first_epochs_;     // by parameter, in which it learns
  std::vector<bool> frozen_;              // by parameter, in this iteration
  std::vector<bool> known_;               // by parameter: frozen since a digest of it was taken
  std::vector<Cut> cuts_;                 // used before
  const UpdateRanges* ranges_ = nullptr;  // of this update
  UpdateScalars scalars_;                 // of it
  std::vector<double> divisors_;          // of the sums, by parameter
  std::deque<Progress> progress_;         // by parameter
  std::vector<std::vector<const float*>> arrays_;  // of each parameter: itself, the solver's state
  std::vector<std::vector<float>> limited_;        // gradients within the threshold, by thread
  std::vector<Digest> digests_;                    // by parameter
};

}  // namespace lockstep
