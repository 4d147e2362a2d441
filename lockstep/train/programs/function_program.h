// The shard program of a network with a user-defined loss function, on threads or on a device.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/nn/runner/compiled_network.h"
#include "lockstep/engine/plan/runs_in_turn.h"
#include "lockstep/train/profile/iteration_profile.h"
#include "lockstep/train/programs/devices/device_transfers.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/programs/shard_plans.h"
#include "lockstep/train/programs/shard_program.h"
#include "lockstep/train/programs/shard_sums.h"

namespace lockstep {

// What one forward run of the network leaves in its states.
struct ForwardStatistics {
  // Identifies the plan: rows, mode, whether it carries states by row, types of the inputs,
  // gradients for inputs, outputs, steps of the inputs that are sequences.
  struct Key {
    int64_t n = 0;
    bool training = true, carry = false, input_gradients = false;
    std::vector<DType> inputs;
    std::vector<std::string> outputs;
    std::vector<int64_t> steps;
    auto operator<=>(const Key&) const = default;

    template <class Archive>
    void serialize(Archive& archive) {
      archive(n, training, carry, input_gradients, inputs, outputs, steps);
    }
  };
  Key key;
  std::vector<float> values;   // for each statistic all means, then all variances
  std::vector<float> carried;  // see CarriedRows::take()

  template <class Archive>
  void serialize(Archive& archive) {
    archive(key, values, carried);
  }
};

// The results of a shard other than its gradients.
struct FunctionSummary {
  double loss = 0;             // sum over the rows
  int64_t terms = 0;           // rows, or valid steps of a loss by step
  bool has_one_value = false;  // one for all rows
  // Row numbers in the mini-batch of the first and the last non-finite loss; -1: there is none.
  int64_t not_finite = -1, last_not_finite = -1;
  double found = 0;  // the first non-finite loss
  std::vector<ForwardStatistics> runs;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(loss, terms, has_one_value, not_finite, last_not_finite, found, runs);
  }
};

struct FunctionProgramOptions {
  uint64_t seed = 0;  // of random numbers (dropout)
  DType precision = DType::f32;
  kernels::Choice choice = {};  // of a device's algorithms
  double loss_scale = 1;        // the gradients are multiplied by it
  std::string loss = {};        // names the loss in errors
  bool by_step = false;         // see TrainingLoss
};

// A tensor of a mini-batch whose rows are sequences. Each shard gets its rows with room for its
// longest one.
struct RaggedTensor {
  RowsOf rows;
  Shape step;
  DType type = DType::f32;
};

// On a device, each worker has its own stream for the eager work of losses (EagerStream), in
// addition to those of its plan runs. Losses and statistics are copied to pinned memory and read by
// complete(), so that the host adds the next shards meanwhile, unless a loss itself waits for
// values. Plan runs are recorded. The rest of a loss is not, because a function need not add the
// same work in each call.
//
// Iterations run ahead if the network has no moving statistics and carries nothing, and the loss is
// not by step. A loss may read statistics (predict()), and the host updates them when an iteration
// is finished.
class FunctionProgram final : public ShardProgram, private BundledProgram {
 public:
  // The network must be initialized. The network and the profile must stay alive.
  FunctionProgram(Network& network, const FunctionProgramOptions& options,
                  IterationProfile* profile = nullptr);

  // Sets the mini-batch and loss of the next iteration. The tensors have equal row counts, are
  // row-major, and lie on the CPU or on the network's device. The loss must stay alive until the
  // iteration has begun. `fresh`: states by row begin with their initial values. Throws
  // InvalidArgument for tensors that do not fit together, and for more rows than the network's
  // states by row are made for. `ragged`: the values of tensors that are sequences, by number, in
  // place of which `batch` has the lengths. Their memory must stay valid as the loss.
  void set_batch(const std::vector<Tensor>& batch, const ShardLoss& loss, bool fresh = false,
                 std::map<size_t, RaggedTensor> ragged = {});
  // For prepare(): the types of the network's inputs. Otherwise each one has the type of the
  // mini-batch's first tensor.
  void expect_inputs(std::vector<DType> types) { expected_ = std::move(types); }
  uint64_t random_seed() const { return options_.seed; }
  int64_t rows() const { return present().batch.front().shape()[0]; }

  void prepare(std::span<const IndexRange> shards, int workers) override;
  const GradientLayout& gradient_layout() const override { return layout_; }
  uint64_t layout_version() const override { return layout_version_; }
  size_t summary_bytes() const override { return 0; }
  // The summaries have the number by which a sum over steps is divided.
  bool runs_ahead() const override {
    return !options_.by_step && !has_statistics_ && network_.row_states().empty();
  }
  BundledProgram* bundled() override;
  ShardGradients compute(const ShardTask& task) override { return compute(task, false); }
  void complete(const ShardTask& task) override;
  void wait() override;
  void join() override;
  Digest summary_digest(const ShardTask& task) const override;
  Bytes encode_summaries(const IndexRange& shards) const override;
  void decode_summaries(const IndexRange& shards, const Bytes& bytes) override;
  void time_passes(ThreadPool& pool, PassFloors& floors) override;

  // Whether the loss returned one value for all rows of the shard. After compute().
  bool has_one_value(const ShardTask& task) const { return summary_of(task).has_one_value; }
  // The loss of the shard, summed over its rows. After compute(), on a device after complete().
  double loss_of(const ShardTask& task) const { return summary_of(task).loss; }
  // After an iteration: the summaries of the shards of all members of the group.
  const std::vector<FunctionSummary>& summaries() const { return finished().summaries; }
  // Throws Error naming the rows with a non-finite loss. `iteration` is for the message.
  void check_finite(int64_t iteration) const;
  bool is_finite() const;
  // Throws InvalidArgument if shards have run the network differently, or their statistics are of
  // single values.
  void check_statistics();
  // Updates the network's states from the shards' statistics, and takes what they leave in states
  // by row. `state(k)`: host memory of state k. Throws what check_statistics() throws, before it
  // changes anything.
  void follow_statistics(const std::function<float*(int k)>& state);

 private:
  friend class Shard;
  // The network compiled for shards of one size.
  struct ShardPlan : CompiledNetwork {
    std::exception_ptr refused;  // by require_values_to_normalize(); thrown where it is run
  };
  // Data of one thread, or of one stream.
  struct Worker {
    std::unique_ptr<StreamForEager> stream;  // null on the CPU
    std::map<const ShardPlan*, std::vector<std::unique_ptr<PlanRun>>> runs;
    // Of sequences on the CPU, whose plans are many: the first run of each shard, the second one
    // and so on. Plans of all shapes share the memory of each.
    std::deque<RunsInTurn> turns;
    std::map<const ShardPlan*, int64_t> calls;  // forward runs, for a profiler
    Tensor gradients;                           // of the last shard
  };

  enum class Use : uint8_t { shards, bundles, trial };
  // Made at the first call for a key. The reference stays valid until forget_plans(), or until
  // forget_trial() if the plan is made for a trial alone. That for bundles leaves the gradients of
  // parameters to sums over shards.
  const ShardPlan& plan(const ForwardStatistics::Key& key, Use use = Use::shards)
      LOCKSTEP_EXCLUDES(mutex_);
  void forget_plans() LOCKSTEP_EXCLUDES(mutex_);
  // Whether plans and runs belong to the network's present parameters.
  bool is_present() const;
  std::vector<uint64_t> parameter_ids() const;
  // Data of one iteration. On a device, several are under way.
  struct Iteration {
    int64_t number = 0;
    std::vector<Tensor> batch;
    std::map<size_t, RaggedTensor> ragged;         // by tensor
    std::vector<std::unique_ptr<Pinned>> uploads;  // by tensor; what the device copies `batch` from
    std::vector<size_t> upload_bytes;
    std::vector<FunctionSummary> summaries;
    FunctionSummary repeated[2];
    // By tensor, on a device: the values of `batch` that came from the CPU.
    std::vector<Tensor> here;
    std::vector<DeviceTransfers> transfers;  // by shard; on a device
    DeviceTransfers repeated_transfers[2];

    FunctionSummary& summary_of(const ShardTask& task) {
      return task.repeat > 0 ? repeated[task.repeat - 1]
                             : summaries[static_cast<size_t>(task.shard)];
    }
    DeviceTransfers& transfers_of(const ShardTask& task) {
      return task.repeat > 0 ? repeated_transfers[task.repeat - 1]
                             : transfers[static_cast<size_t>(task.shard)];
    }
  };
  // The iteration that begins, and the one that a task belongs to.
  Iteration& present() { return iterations_[present_]; }
  const Iteration& present() const { return iterations_[present_]; }
  size_t slot_of(const ShardTask& task) const;
  const Iteration& finished() const { return iterations_[finished_]; }
  const FunctionSummary& summary_of(const ShardTask& task) const {
    return const_cast<FunctionProgram*>(this)->iterations_[slot_of(task)].summary_of(task);
  }
  Tensor upload(const Tensor& tensor, size_t i);
  // The shards of run `r` of the network: their rows, and their statistics.
  struct FinishedRun {
    std::vector<IndexRange> rows;
    std::vector<const float*> statistics;
  };
  FinishedRun finished_run(size_t r) const;
  // Rows of tensor `i` on the CPU, of the iteration that begins. Undefined: they are on a device.
  Tensor rows_here(size_t i, const IndexRange& range) const;
  // Gives a shard its rows of all tensors.
  static void take_rows(const Iteration& it, Shard::State& state);
  // All lambdas of one location in a program have one type.
  using LossType = std::pair<std::type_index, std::uintptr_t>;
  static LossType type_of(const ShardLoss& loss);
  // A run of the network for any number of rows (n is 0).
  using BranchKey = ForwardStatistics::Key;
  // How a loss can be computed in bundles, as its first shards have shown.
  struct BundledLoss {
    bool apart = false;                          // it cannot
    std::vector<BranchKey> branches;             // sorted; empty: not known yet
    std::vector<bool> reached;                   // parameters
    std::deque<ShardSums> sums;                  // by branch
    std::shared_ptr<const UpdateRanges> ranges;  // of all sums
  };
  ShardGradients compute(const ShardTask& task, bool in_bundle);
  // After a shard was computed alone. `uses_parameters`: the loss does, without a run.
  void note_branches(const Shard::State& s, bool uses_parameters) LOCKSTEP_EXCLUDES(mutex_);
  // Whether plans for bundles compute this run of a shard.
  bool is_branch(const Shard::State& s, const ForwardStatistics::Key& key) const;
  void keep_operands(Shard::State& s, const ForwardStatistics::Key& key, const PlanRun& run);
  void make_sums(int64_t rows);
  std::pair<ShardSums*, int64_t> update_range_of(int64_t range) const;
  void prepare_bundles(const ShardBundles& work, int threads) override;
  void compute_bundle(size_t bundle, int thread) override;
  bool have_operands() override;
  size_t operand_bytes(std::span<const IndexRange> rows) override;
  const std::shared_ptr<const UpdateRanges>& ranges() const override {
    return bundled_loss_->ranges;
  }
  void add_gradients(int64_t range, int thread) override;
  void give_gradients(int64_t range, int thread, GradientSink& sink) override;
  // Whether neither this function nor a loss of this type was tried before.
  bool is_new(const ShardLoss& loss) LOCKSTEP_EXCLUDES(mutex_);
  // Throws InvalidArgument if the loss of a row depends on other rows of the shard. Each function
  // and each lambda is tried once.
  void refuse_coupled(const Shard::State& of);
  void forget_trial(Worker& worker) LOCKSTEP_EXCLUDES(mutex_);

  Network& network_;
  const FunctionProgramOptions options_;
  IterationProfile* const profile_;
  Iteration iterations_[kIterationSlots];
  size_t present_ = 0, finished_ = 0;
  std::vector<DType> expected_;
  const ShardLoss* loss_ = nullptr;
  bool fresh_ = false;  // of the present iteration

  // The plans belong to these parameters. A network that is initialized again has new ones.
  std::vector<uint64_t> parameters_;
  Mutex mutex_;
  using Plans = std::map<ForwardStatistics::Key, ShardPlan>;
  std::map<Use, Plans> plans_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<LossType> tried_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<LossType, BundledLoss> bundled_losses_;
  std::optional<LossType> loss_type_;
  BundledLoss* bundled_loss_ = nullptr;  // of that type
  const ShardBundles* work_ = nullptr;
  std::atomic<bool> deviates_{false};  // a shard of these bundles
  GradientLayout layout_;
  uint64_t layout_version_ = 0;
  std::vector<Worker> workers_;
  bool has_statistics_ = true;                     // that iterations change
  bool has_computed_ = false, is_broken_ = false;  // broken: compute() has failed
};

}  // namespace lockstep
