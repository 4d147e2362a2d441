#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/evaluation/batch_evaluator.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "lockstep/train/evaluation/gathered_batch.h"
#include "lockstep/train/iteration/shards.h"

namespace lockstep {
namespace {

// The plan for batches or parts of a shape.
std::shared_ptr<const Plan> plan_for(const EvaluatedBatches& batches, const ShardShape& shape) {
  const EvaluatedData& data = batches.data();
  const Network& network = batches.network();
  PlanOptions options;
  std::optional<kernels::ThreadChoice> choice;
  if (!data.loss) {  // the user's loss computes with f32
    options.precision = data.precision;
    if (data.choice) choice.emplace(*data.choice);
  }
  return std::make_shared<const Plan>(batches.lower(shape).graph, network.parameter_shapes(),
                                      options, network.device());
}

// Rows that a thread copies at a time to memory that is sent to a device.
constexpr int64_t kCopiedRows = 32;

class EvaluatorByDevice final : public BatchEvaluator {
 public:
  EvaluatorByDevice(EvaluatedBatches& batches, ThreadPool& pool, bool targets)
      : batches_(batches),
        pool_(pool),
        gives_targets_(targets && batches.against() == Against::images) {
    Network& network = batches.network();
    const EvaluatedData& data = batches.data();
    const auto plan = plan_for(batches, {batches.size()});
    BatchRow row;
    if (batches.against() != Against::nothing) row.wanted = batches.wanted_bytes({batches.size()});
    row.losses = batches.plans_have_loss();
    row.scores = static_cast<size_t>(batches.output().elements()) * sizeof(float);
    for (const CachedValue& input : data.images->inputs()) row.inputs.push_back(input.bytes);
    device_.emplace(network, plan, batches.size(), row);
  }

  void compute(const Next& next, const Take& take) override {
    const ArithmeticMode mode;
    struct Begun {
      size_t slot = 0;
      IndexRange observations;
    };
    std::deque<Begun> under_way;
    device_->make_slots(batches_.count());
    const auto take_first = [&] {
      const auto [slot, observations] = under_way.front();
      under_way.pop_front();
      device_->wait(slot);
      take(
          {.observations = observations,
           .scores = device_->scores(slot),
           .losses = batches_.plans_have_loss() ? device_->losses(slot) : nullptr,
           .targets = gives_targets_ ? static_cast<const float*>(device_->wanted(slot)) : nullptr});
    };
    for (size_t slot = 0;; slot = (slot + 1) % device_->slots()) {
      const std::optional<int64_t> batch = next();
      if (!batch) break;
      if (under_way.size() == device_->slots()) take_first();
      const IndexRange observations = batches_.rows(*batch);
      // An evaluation that failed may have left a batch there.
      device_->wait(slot);
      fill(slot, observations);
      device_->begin(slot);
      under_way.push_back({slot, observations});
    }
    while (!under_way.empty()) take_first();
  }

  int64_t together() const override { return 1; }

 private:
  // By all threads.
  void fill(size_t slot, const IndexRange& observations) {
    const std::vector<uint8_t*> to = device_->inputs(slot);
    void* const wanted = device_->wanted(slot);
    batches_.clear_padding(to, wanted, observations.count);
    batches_.expect(observations);
    const auto row_ranges = cut_into_shards(observations.count, kCopiedRows);
    for_each_shard(pool_, static_cast<int64_t>(row_ranges.size()),
                   [&](int64_t i, int thread, const ArithmeticMode&) {
                     batches_.fill_rows(to, wanted, row_ranges[static_cast<size_t>(i)],
                                        observations.first, thread);
                   });
  }

  EvaluatedBatches& batches_;
  ThreadPool& pool_;
  const bool gives_targets_;
  std::optional<DeviceBatches> device_;
};

// Sequences, part by part.
class SequencesByDevice final : public BatchEvaluator {
 public:
  SequencesByDevice(EvaluatedBatches& batches, bool targets)
      : batches_(batches),
        gives_targets_(targets && batches.against() == Against::images),
        memory_(memory_of(batches.network().device())) {
    Network& network = batches.network();
    for (const ShardShape& shape : batches.shapes()) {
      runs_.emplace(shape,
                    PlanRun(plan_for(batches, shape), network.packed(), network.state_pointers()));
    }
  }

  void compute(const Next& next, const Take& take) override {
    const ArithmeticMode mode;
    while (const std::optional<int64_t> batch = next()) {
      const IndexRange observations = batches_.rows(*batch);
      batches_.expect(observations);
      gathered_.begin(batches_, observations, gives_targets_);
      for (const EvaluatedPart& part : batches_.parts(observations)) compute(part);
      take(gathered_.result(0));
    }
  }

  int64_t together() const override { return 1; }

 private:
  void compute(const EvaluatedPart& part) {
    PlanRun& run = runs_.at(part.shape);
    fill(run, part);
    memory_.activate();
    memory_.follow(run.stream(), memory_.default_stream());
    run.forward({});
    const int64_t rows = part.shape.rows, outputs = rows * batches_.outputs_together(part.shape);
    scores_.resize(static_cast<size_t>(outputs * batches_.output().elements()));
    run.get_output(0, scores_.data(), scores_.size() * sizeof(float));
    if (batches_.plans_have_loss()) {
      losses_.resize(static_cast<size_t>(rows));
      run.get_output(1, losses_.data(), losses_.size() * sizeof(float));
    }
    run.synchronize();
    gathered_.take(part, scores_.data(), losses_.data());
  }

  void fill(PlanRun& run, const EvaluatedPart& part) {
    const auto inputs = static_cast<size_t>(batches_.target_input());
    sent_.resize(inputs + 1);
    std::vector<uint8_t*> to;
    for (size_t k = 0; k < inputs; ++k) {
      sent_[k].resize(run.input_bytes(static_cast<int>(k)));
      to.push_back(sent_[k].data());
    }
    std::vector<uint8_t>& wanted = sent_.back();
    if (batches_.against() != Against::nothing) {
      wanted.resize(static_cast<size_t>(part.shape.rows) * batches_.wanted_bytes(part.shape));
    }
    batches_.fill(to, wanted.data(), part, 0);
    gathered_.take_targets(part, reinterpret_cast<const float*>(wanted.data()));
    for (size_t k = 0; k < sent_.size(); ++k) {
      const auto i = static_cast<int>(k);
      if (k == inputs && !batches_.plans_have_loss()) break;
      if (run.reads_input(i)) run.set_input(i, sent_[k].data(), sent_[k].size());
    }
    run.synchronize();  // the next part fills the same memory
  }

  EvaluatedBatches& batches_;
  const bool gives_targets_;
  DeviceMemory& memory_;
  std::map<ShardShape, PlanRun> runs_;
  GatheredBatch gathered_;
  std::vector<std::vector<uint8_t>> sent_;  // inputs, then labels or targets
  std::vector<float> scores_, losses_;
};

}  // namespace

std::unique_ptr<BatchEvaluator> evaluator_by_device(EvaluatedBatches& batches, ThreadPool& pool,
                                                    bool targets) {
  if (batches.in_parts()) return std::make_unique<SequencesByDevice>(batches, targets);
  return std::make_unique<EvaluatorByDevice>(batches, pool, targets);
}

}  // namespace lockstep
