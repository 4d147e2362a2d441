// The shard program of a training with a user-defined loss function.
#pragma once

#include <vector>

#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/programs/function_program.h"
#include "lockstep/train/programs/loss_program.h"

namespace lockstep {

// Passes mini-batches to the loss as tensors: inputs, then labels or targets; see TrainingLoss.
class FunctionLossProgram final : public MiniBatchProgram {
 public:
  // See LossProgram. The loss must stay alive, too.
  FunctionLossProgram(Network& network, const TrainingOptions& options,
                      const std::vector<DType>& inputs, const TrainingLoss& loss,
                      IterationProfile* profile = nullptr);

  void set_batch(const MiniBatch& batch) override;
  void report(std::span<const IndexRange> shards, const SummaryOf& summary,
              IterationOutcome& outcome) const override;
  void check_statistics(std::span<const IndexRange>, const SummaryOf&) override {
    program_.check_statistics();
  }
  void follow_statistics(std::span<const IndexRange> shards, const SummaryOf& summary,
                         const std::function<float*(int k)>& state) override;

  void prepare(std::span<const IndexRange> shards, int workers) override {
    program_.prepare(shards, workers);
  }
  const GradientLayout& gradient_layout() const override { return program_.gradient_layout(); }
  uint64_t layout_version() const override { return program_.layout_version(); }
  size_t summary_bytes() const override { return 0; }
  bool runs_ahead() const override { return program_.runs_ahead(); }
  ShardGradients compute(const ShardTask& task) override;
  void complete(const ShardTask& task) override { program_.complete(task); }
  void wait() override { program_.wait(); }
  void join() override { program_.join(); }
  double loss_of(const ShardTask& task) const override { return program_.loss_of(task); }
  Digest summary_digest(const ShardTask& task) const override {
    return program_.summary_digest(task);
  }
  Bytes encode_summaries(const IndexRange& shards) const override {
    return program_.encode_summaries(shards);
  }
  void decode_summaries(const IndexRange& shards, const Bytes& bytes) override {
    program_.decode_summaries(shards, bytes);
  }
  void time_passes(ThreadPool& pool, PassFloors& floors) override {
    program_.time_passes(pool, floors);
  }

 private:
  Network& network_;
  const std::vector<DType> inputs_;
  const TrainingLoss& loss_;
  FunctionProgram program_;
};

}  // namespace lockstep
