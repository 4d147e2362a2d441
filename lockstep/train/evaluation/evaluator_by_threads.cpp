#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/plan/runs_in_turn.h"
#include "lockstep/train/evaluation/batch_evaluator.h"
#include "lockstep/train/evaluation/gathered_batch.h"

namespace lockstep {
namespace {

constexpr int kScores = 0, kLosses = 1;  // outputs of the plans

class EvaluatorByThreads final : public BatchEvaluator {
 public:
  EvaluatorByThreads(EvaluatedBatches& batches, ThreadPool& pool, bool targets)
      : batches_(batches),
        pool_(pool),
        gives_targets_(targets && batches.against() == Against::images),
        gathered_(static_cast<size_t>(pool.size())),
        targets_(static_cast<size_t>(pool.size())) {
    if (batches.keeps()) {
      kept_.emplace(batches.network(), batches.data().keeping, batches.observations(),
                    batches.size());
    } else {
      make_plans(nullptr);
    }
  }

  void begin() override {
    if (!kept_ || !kept_->begin()) return;
    const Unchanging unchanging = kept_->unchanging();
    make_plans(&unchanging);
    kept_->divide(*plans_.begin()->second);
  }

  void compute(const Next& next, const Take& take) override {
    std::atomic<bool> failed{false};
    pool_.run([&](int thread) {
      if (thread >= together()) return;
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

  int64_t together() const override {
    return std::min<int64_t>(pool_.size(), std::max<int64_t>(batches_.count(), 1));
  }

 private:
  void make_plans(const Unchanging* unchanging) {
    runs_.clear();
    plans_.clear();
    Network& network = batches_.network();
    PlanOptions options;
    options.unchanging = unchanging;
    for (const ShardShape& shape : batches_.shapes()) {
      plans_[shape] = std::make_shared<const Plan>(
          batches_.lower(shape).graph, network.parameter_shapes(), options, network.device());
    }
    for (int64_t t = 0; t < together(); ++t) {
      runs_.emplace_back(network.packed(), network.state_pointers());
      for (const auto& [shape, plan] : plans_) runs_.back().add(plan);
    }
  }

  void compute(const IndexRange& observations, int thread, const ArithmeticMode& mode,
               const Take& take) {
    GatheredBatch& gathered = gathered_[static_cast<size_t>(thread)];
    ComputedBatch computed{.observations = observations, .thread = thread};
    expect(observations);
    if (batches_.in_parts()) gathered.begin(batches_, observations, gives_targets_);
    for (const EvaluatedPart& part : batches_.parts(observations)) {
      PlanRun& run = runs_[static_cast<size_t>(thread)].of(*plans_.at(part.shape));
      run_forward(run, part, observations, thread);
      mode.check();
      if (batches_.in_parts()) {
        gathered.take(part, run.output(kScores),
                      batches_.plans_have_loss() ? run.output(kLosses) : nullptr);
        continue;
      }
      computed.scores = run.output(kScores);
      if (batches_.plans_have_loss()) computed.losses = run.output(kLosses);
    }
    if (batches_.in_parts()) return take(gathered.result(thread));
    if (gives_targets_) computed.targets = targets_[static_cast<size_t>(thread)].data();
    take(computed);
  }

  bool keeps() const { return kept_ && kept_->keeps(); }
  bool knows(const IndexRange& observations) const { return keeps() && kept_->knows(observations); }

  // Tells the cache what will be read.
  void expect(const IndexRange& observations) const {
    if (!knows(observations) || rest_reads_examples()) batches_.expect(observations);
  }

  // Whether examples are read where results of frozen layers are known.
  bool rest_reads_examples() const {
    return batches_.wanted_from_examples() || kept_->rest_reads_inputs();
  }

  void run_forward(PlanRun& run, const EvaluatedPart& part, const IndexRange& observations,
                   int thread) {
    if (knows(observations)) {
      kept_->load(observations, run);
    } else {
      fill(run, part, observations, thread);
      if (!keeps() || !kept_->make_room(observations)) return run.forward({});
      run.forward_first({});
      kept_->save(observations, run);
    }
    // Of the inputs, whose memory the first part has used.
    fill(run, part, observations, thread, !kept_->rest_reads_inputs());
    run.forward_rest({});
  }

  // `wanted_alone`: labels or targets, and not the inputs before them.
  void fill(PlanRun& run, const EvaluatedPart& part, const IndexRange& observations, int thread,
            bool wanted_alone = false) {
    std::vector<std::byte> unused;  // labels or targets, where only the user's loss reads them
    void* wanted = nullptr;
    if (batches_.plans_have_loss()) {
      wanted = run.input(batches_.target_input());
    } else if (batches_.against() != Against::nothing) {
      unused.resize(static_cast<size_t>(part.shape.rows) * batches_.wanted_bytes(part.shape));
      wanted = unused.data();
    }
    if (wanted_alone) {
      batches_.fill_wanted(wanted, part, thread);
    } else {
      std::vector<uint8_t*> to;
      for (int k = 0; k < batches_.target_input(); ++k) {
        to.push_back(static_cast<uint8_t*>(run.input(k)));
      }
      batches_.fill(to, wanted, part, thread);
    }
    if (!gives_targets_) return;
    // The run may reuse its inputs' memory.
    const auto* const from = static_cast<const float*>(wanted);
    if (batches_.in_parts()) {
      return gathered_[static_cast<size_t>(thread)].take_targets(part, from);
    }
    targets_[static_cast<size_t>(thread)].assign(
        from, from + observations.count * batches_.output().elements());
  }

  EvaluatedBatches& batches_;
  ThreadPool& pool_;
  const bool gives_targets_;
  std::optional<KeptBatches> kept_;
  std::map<ShardShape, std::shared_ptr<const Plan>> plans_;
  std::vector<RunsInTurn> runs_;             // by thread
  std::vector<GatheredBatch> gathered_;      // by thread
  std::vector<std::vector<float>> targets_;  // by thread, of batches that are one part
};

}  // namespace

std::unique_ptr<BatchEvaluator> evaluator_by_threads(EvaluatedBatches& batches, ThreadPool& pool,
                                                     bool targets) {
  return std::make_unique<EvaluatorByThreads>(batches, pool, targets);
}

}  // namespace lockstep
