// The shard program of a network with a built-in loss, computed by threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/plan/runs_in_turn.h"
#include "lockstep/train/profile/iteration_profile.h"
#include "lockstep/train/programs/frozen/kept_results.h"
#include "lockstep/train/programs/shard_plans.h"
#include "lockstep/train/programs/shard_program.h"
#include "lockstep/train/programs/shard_summary.h"
#include "lockstep/train/programs/shard_sums.h"
#include "lockstep/train/records/iteration_outcome.h"

namespace lockstep {

struct TrainingOptions;

// The summary of a shard of an iteration; null if summaries vary in size.
using SummaryOf = std::function<const std::byte*(int64_t shard)>;

// A shard program for train(): its mini-batches come from a queue.
class MiniBatchProgram : public ShardProgram {
 public:
  // Sets the mini-batch of the next iteration, which must stay alive until that has begun. Throws
  // InvalidArgument for one that does not fit the network.
  virtual void set_batch(const MiniBatch& batch) = 0;
  // Fills in the sums of a finished iteration.
  virtual void report(std::span<const IndexRange> shards, const SummaryOf& summary,
                      IterationOutcome& outcome) const = 0;
  // Before the update: throws what follow_statistics() would throw.
  virtual void check_statistics(std::span<const IndexRange> shards, const SummaryOf& summary) = 0;
  // Updates the network's states from the batch statistics of a finished iteration, and takes what
  // its rows have left in states by row. `state(k)`: host memory of state number k.
  virtual void follow_statistics(std::span<const IndexRange> shards, const SummaryOf& summary,
                                 const std::function<float*(int k)>& state) = 0;
  // The loss of a computed (on a device: completed) shard, summed over its observations.
  virtual double loss_of(const ShardTask& task) const = 0;
  // Whether it accepts images that are not augmented yet (MiniBatch::maps).
  virtual bool augments() const { return false; }
};

// What the programs of a network's built-in loss share on all devices: plans, and summaries of one
// size (shard_summary.h).
class BuiltInLossProgram : public MiniBatchProgram {
 public:
  void set_batch(const MiniBatch& batch) override;
  void report(std::span<const IndexRange> shards, const SummaryOf& summary,
              IterationOutcome& outcome) const final;
  void check_statistics(std::span<const IndexRange> shards, const SummaryOf& summary) final;
  void follow_statistics(std::span<const IndexRange> shards, const SummaryOf& summary,
                         const std::function<float*(int k)>& state) final;
  const GradientLayout& gradient_layout() const final { return plans_.gradient_layout(); }
  size_t summary_bytes() const final {
    return shard_summary_bytes(plans_.statistic_elements() +
                               plans_.most_rows() * plans_.carried_elements());
  }
  // What an iteration carries, the next one reads. Means over steps and over pixels are divided by
  // their numbers, which the summaries have.
  bool runs_ahead() const final {
    return plans_.carries().empty() && plans_.output_sequence() < 0 && plans_.pixels() == 0;
  }
  Digest summary_digest(const ShardTask& task) const final;
  double loss_of(const ShardTask& task) const final;

 protected:
  // Uses seed, class_weights, loss_scale and precision of the resolved options. `inputs` and
  // `mixed`: as for ShardPlans. The network must stay alive.
  BuiltInLossProgram(Network& network, const TrainingOptions& options, std::vector<DType> inputs,
                     bool mixed);

  Network& network_;
  const uint64_t seed_;
  const std::vector<float> class_weights_;  // that multiply losses; of mixed images `factors_` do
  const double loss_scale_;
  ShardPlans plans_;
  const int32_t* labels() const {
    return plans_.labeled() ? reinterpret_cast<const int32_t*>(arrays_.back().first) : nullptr;
  }

  std::vector<RowsOf> arrays_;  // what the plans' arrays are in this iteration
  CarriedRows carried_;
  bool fresh_ = false;  // states by row are read at their initial values
  const std::vector<float> weights_of_mixed_;
  std::vector<float> factors_;  // of own labels of all rows, then of other ones
  const std::vector<ImageMap>* maps_ = nullptr;
  int64_t batch_rows_ = 0;  // of the mini-batch

 private:
  void set_factors(const MiniBatch& batch);
};

// Computes on the CPU. The runs of plans of all shapes by one thread share its memory.
class LossProgram final : public BuiltInLossProgram, private BundledProgram {
 public:
  // See BuiltInLossProgram. The profile must stay alive.
  LossProgram(Network& network, const TrainingOptions& options, std::vector<DType> inputs,
              IterationProfile* profile = nullptr, bool mixed = false, KeepingSetup keeping = {});

  void set_batch(const MiniBatch& batch) override;
  void prepare(std::span<const IndexRange> shards, int workers) override;
  // Kept results are those of shards one by one.
  BundledProgram* bundled() override {
    return plans_.shards_together() && !keeps_results() ? this : nullptr;
  }
  void prepare_shards() override;
  int64_t begin_shards(std::span<const IndexRange> shards,
                       std::span<const int64_t> numbers) override;
  IndexRange shards_before(int64_t task) const override;
  void compute_before(int64_t task, int64_t iteration, int thread) override;
  void end_before() override;
  ShardGradients compute(const ShardTask& task) override;
  void time_passes(ThreadPool& pool, PassFloors& floors) override;

 private:
  // The plan of a shape, and how often each of its threads has computed it.
  struct ShapeRuns {
    std::shared_ptr<const Plan> plan;
    std::vector<int64_t> calls = {};
  };
  using Runs = std::map<ShardShape, ShapeRuns>;

  // Consecutive shards, with the shape of their plan, their rows and memory for their summaries.
  struct Task {
    int64_t iteration, shard;
    const ShardShape& shape;
    std::span<const IndexRange> rows;
    std::span<std::byte* const> summaries;
    int thread;
  };

  void prepare_bundles(const ShardBundles& work, int threads) override;
  void compute_bundle(size_t bundle, int thread) override;
  size_t operand_bytes(std::span<const IndexRange> rows) override;
  const std::shared_ptr<const UpdateRanges>& ranges() const override { return ranges_; }
  void add_gradients(int64_t range, int thread) override;
  void give_gradients(int64_t range, int thread, GradientSink& sink) override;

  // The part of the plans that frozen layers compute; null: there is none.
  const KeptPart* kept_part() const;
  bool keeps_results() const;
  // Divides the plans by the layers that are frozen in an epoch (from 1).
  void freeze_for(int64_t epoch);
  void say_what_is_kept(const KeptPart& part);
  // Whether the results of all these rows are known.
  bool knows(const PlanRun& run, const IndexRange& rows) const;
  void copy_inputs(PlanRun& run, const Task& task, bool rest) const;
  void copy_inputs_before(PlanRun& run, const KeptResults::Task& of) const;

  void make_sums(const Plan& plan);
  void add_runs(Runs& runs, const ShardShape& shape, int threads,
                const std::shared_ptr<const Plan>& plan);
  // Returns the thread's run, with the results.
  PlanRun& run(ShapeRuns& of, const Task& task, ThreadTimer& charge);
  // Writes the summaries and the output gradients.
  void summarize(PlanRun& run, const Task& task) const;
  // The valid steps, and those that are classified right.
  void count_steps(const Task& task, const float* scores, ShardSummary& summary) const;
  void time_sums(ThreadPool& pool, PassFloors& floors);

  IterationProfile* const profile_;
  const KeepingSetup keeping_;
  std::vector<int64_t> first_epochs_;  // by parameter, in which it learns; empty: nothing is frozen
  std::vector<bool> frozen_;           // by parameter, in this epoch
  std::vector<std::shared_ptr<const Plan>> former_plans_;
  KeptResults kept_;
  const std::vector<KeptResults::Task>* before_ = nullptr;
  std::span<const int64_t> observations_;  // of the mini-batch
  bool told_ = false;
  std::map<ShardShape, int> wanted_;  // threads that compute such shards one by one
  Runs runs_, bundle_runs_;
  std::vector<RunsInTurn> threads_;
  const ShardBundles* work_ = nullptr;
  std::optional<ShardSums> sums_;
  std::shared_ptr<const UpdateRanges> ranges_;  // of the sums
  std::atomic<bool> sums_used_{false};          // by give_gradients()
  std::vector<int> sum_accounts_;               // of the profile, by sum
  int keeping_account_ = 0;
};

}  // namespace lockstep
