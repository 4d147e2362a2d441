// A training step on a device with queues (a GPU), alone or as a member of a group: the host adds
// the work of its shards to the queues. Alone it adds the next iteration's before it waits for what
// the last one says, unless norms have a threshold. In a group it also waits for the others:
// partial sums go from device to device where each member has one of its own (device_links.h), else
// through the host's memory; all additions are the device's.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/train/training_step.h"

namespace lockstep {

class QueuedStep final : public TrainingStep {
 public:
  // See make_training_step(). options.streams queues share the shards (of each of the two sizes
  // that shards may have, with memory of their own); how many there are changes the speed alone:
  // the sums are the same tree's.
  QueuedStep(Network& network, Solver& solver, const TrainingOptions& options,
             DType inputs = DType::u8);
  ~QueuedStep() override;

  void join(std::unique_ptr<Group> group, std::vector<double> loads, double limit) override;
  std::string route() const override;
  GroupSumOptions sum_options() const override;
  int64_t check_frequency() const override;
  void watch(std::function<void(int stream, int64_t shard)> watch) override;
  void compute_alone(std::vector<ShardOfIteration> shards) override;
  bool augments() const override;
  double shard_seconds() const override;

  StepResult compute(const MiniBatch& batch, int64_t iteration) override;
  void apply(const UpdateScalars& scalars) override;
  Digest digest(int64_t iteration) override;
  bool runs_ahead(int64_t iteration) const override;
  void begin(const MiniBatch& batch, const UpdateScalars& scalars) override;
  FinishedIteration finish() override;
  const std::vector<int64_t>& shards_by_worker() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
