#include <deque>
#include <optional>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/evaluation/batch_evaluator.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "lockstep/train/step/shards.h"

namespace lockstep {
namespace {

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
    PlanOptions options;
    std::optional<kernels::ThreadChoice> choice;
    if (!data.loss) {  // the user's loss computes with f32
      options.precision = data.precision;
      if (data.choice) choice.emplace(*data.choice);
    }
    const auto plan = std::make_shared<Plan>(batches.lower({batches.size()}).graph,
                                             network.parameter_shapes(), options, network.device());
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
      size_t place = 0;
      IndexRange observations;
    };
    std::deque<Begun> under_way;
    device_->make_places(batches_.count());
    const auto take_first = [&] {
      const auto [place, observations] = under_way.front();
      under_way.pop_front();
      device_->wait(place);
      take({.observations = observations,
            .scores = device_->scores(place),
            .losses = batches_.plans_have_loss() ? device_->losses(place) : nullptr,
            .targets =
                gives_targets_ ? static_cast<const float*>(device_->wanted(place)) : nullptr});
    };
    for (size_t place = 0;; place = (place + 1) % device_->places()) {
      const std::optional<int64_t> batch = next();
      if (!batch) break;
      if (under_way.size() == device_->places()) take_first();
      const IndexRange observations = batches_.rows(*batch);
      // An evaluation that failed may have left a batch there.
      device_->wait(place);
      fill(place, observations);
      device_->begin(place);
      under_way.push_back({place, observations});
    }
    while (!under_way.empty()) take_first();
  }

  int64_t together() const override { return 1; }

 private:
  // By all threads.
  void fill(size_t place, const IndexRange& observations) {
    const std::vector<uint8_t*> to = device_->inputs(place);
    void* const wanted = device_->wanted(place);
    batches_.clear_padding(to, wanted, observations.count);
    batches_.expect(observations);
    const auto pieces = cut_into_shards(observations.count, kCopiedRows);
    for_each_shard(pool_, static_cast<int64_t>(pieces.size()),
                   [&](int64_t i, int thread, const ArithmeticMode&) {
                     batches_.fill_rows(to, wanted, pieces[static_cast<size_t>(i)],
                                        observations.first, thread);
                   });
  }

  EvaluatedBatches& batches_;
  ThreadPool& pool_;
  const bool gives_targets_;
  std::optional<DeviceBatches> device_;
};

}  // namespace

std::unique_ptr<BatchEvaluator> evaluator_by_device(EvaluatedBatches& batches, ThreadPool& pool,
                                                    bool targets) {
  return std::make_unique<EvaluatorByDevice>(batches, pool, targets);
}

}  // namespace lockstep
