#include "lockstep/train/trainer.h"

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/training.h"
#include "lockstep/train/workers/training_workers.h"

namespace lockstep {
namespace {

// Says what a user should know of the data, before it is read.
void report_notices(const TrainingData& data, const TrainingControl& control) {
  if (control.replay) return;
  for (const std::string& notice : notices_of(data)) {
    for (TrainingObserver* observer : control.observers) observer->notice(notice);
  }
}

}  // namespace

TrainingResult train(Network& network, const TrainingData& given, const TrainingOptions& options,
                     const TrainingControl& control) {
  if (options.workers.count > 0) {
    throw InvalidArgument(
        "[training] worker processes need a function that makes the training problem",
        "pass a call of this function to train()");
  }
  const OrdinaryArithmetic arithmetic;
  const MatchedData matched = match_all_columns(network, given);
  const TrainingData& data = matched.data;
  check_training(network, data, options);
  network.set_columns(matched.columns);
  report_notices(data, control);
  TrainingOptions placed = options;
  const Device device = resolve_training_device(network, options, data.loss);
  placed.device = to_string(device);
  set_shard_size(network, device, placed);
  const OnDevice moved(network, device);
  return Training(network, data, placed, control, nullptr, {}).run();
}

TrainingResult train(const Call<TrainingProblem>& call, Network& network, const TrainingData& given,
                     const TrainingOptions& options, const TrainingControl& control) {
  if (!network.initialized()) network.initialize(static_cast<uint64_t>(options.seed));
  if (options.workers.count == 0) return train(network, given, options, control);
  const OrdinaryArithmetic arithmetic;
  const MatchedData matched = match_all_columns(network, given);
  const TrainingData& data = matched.data;
  TrainingOptions placed = options;
  std::shared_ptr<detail::PoolCore> pool = pool_for_training(placed, control.pool);
  if (control.workers && (!pool || !placed.workers.load.empty())) {
    throw InvalidArgument(
        "[training] workers can be lent by an open pool alone, and without loads");
  }
  // As many as can join.
  if (control.workers) placed.workers.count = pool->size();
  if (placed.device == "auto") placed.device = "cpu";
  check_training(network, data, placed);
  network.set_columns(matched.columns);
  report_notices(data, control);
  const Device device = resolve_training_device(network, placed, data.loss);
  const TrainingWorkers workers{std::move(pool), devices_of_workers(placed.device, device),
                                control.workers};
  placed.device = to_string(device);
  set_shard_size(network, device, placed);
  const OnDevice moved(network, device);
  return Training(network, data, placed, control, &call, workers).run();
}

}  // namespace lockstep
