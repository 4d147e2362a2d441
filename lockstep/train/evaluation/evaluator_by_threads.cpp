#include <algorithm>
#include <atomic>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/evaluation/batch_evaluator.h"

namespace lockstep {
namespace {

constexpr int kScores = 0, kLosses = 1;  // outputs of the plans

class EvaluatorByThreads final : public BatchEvaluator {
 public:
  EvaluatorByThreads(EvaluatedBatches& batches, ThreadPool& pool, bool targets)
      : batches_(batches),
        pool_(pool),
        gives_targets_(targets && batches.against() == Against::images),
        targets_(static_cast<size_t>(pool.size())) {
    Network& network = batches.network();
    const auto plan =
        std::make_shared<Plan>(batches.lower(batches.size()).graph, network.parameter_shapes(),
                               PlanOptions{}, network.device());
    const int64_t most = std::max<int64_t>(batches.count(), 1);
    for (int64_t t = 0; t < std::min<int64_t>(pool.size(), most); ++t) {
      runs_.emplace_back(plan, network.packed(), network.state_pointers());
    }
  }

  void compute(const Next& next, const Take& take) override {
    std::atomic<bool> failed{false};
    pool_.run([&](int thread) {
      if (static_cast<size_t>(thread) >= runs_.size()) return;
      const ArithmeticMode mode;
      try {
        while (!failed) {
          const auto batch = next();
          if (!batch) return;
          compute(batches_.rows(*batch), thread, mode, take);
        }
      } catch (...) {
        failed = true;
        throw;
      }
    });
  }

  int64_t together() const override { return static_cast<int64_t>(runs_.size()); }

 private:
  void compute(const IndexRange& observations, int thread, const ArithmeticMode& mode,
               const Take& take) {
    PlanRun& run = runs_[static_cast<size_t>(thread)];
    ComputedBatch computed{.observations = observations, .thread = thread};
    std::vector<std::byte> unused;  // labels or targets, where only the user's loss reads them
    void* wanted = nullptr;
    if (batches_.plans_have_loss()) {
      wanted = run.input(batches_.target_input());
    } else if (batches_.against() != Against::nothing) {
      unused.resize(static_cast<size_t>(batches_.size()) * batches_.wanted_bytes());
      wanted = unused.data();
    }
    std::vector<uint8_t*> to;
    for (int k = 0; k < batches_.target_input(); ++k) {
      to.push_back(static_cast<uint8_t*>(run.input(k)));
    }
    batches_.fill(to, wanted, observations, thread);
    if (gives_targets_) {
      // The run may reuse its inputs' memory.
      auto& copy = targets_[static_cast<size_t>(thread)];
      const auto* const from = static_cast<const float*>(wanted);
      copy.assign(from, from + observations.count * batches_.outputs_together() *
                                   batches_.output().elements());
      computed.targets = copy.data();
    }
    run.forward({});
    mode.check();
    computed.scores = run.output(kScores);
    if (batches_.plans_have_loss()) computed.losses = run.output(kLosses);
    take(computed);
  }

  EvaluatedBatches& batches_;
  ThreadPool& pool_;
  const bool gives_targets_;
  std::vector<PlanRun> runs_;                // by thread
  std::vector<std::vector<float>> targets_;  // of a batch, by thread
};

}  // namespace

std::unique_ptr<BatchEvaluator> evaluator_by_threads(EvaluatedBatches& batches, ThreadPool& pool,
                                                     bool targets) {
  return std::make_unique<EvaluatorByThreads>(batches, pool, targets);
}

}  // namespace lockstep
