// What losses of users return.
#include <numeric>
#include <optional>

#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/outside_index.h"
#include "lockstep/train/programs/shard_state.h"

namespace lockstep {
namespace shards {

bool check_losses(const Tensor& losses, const IndexRange& range, size_t shards) {
  const bool defined = losses.defined() && losses.dtype() == DType::f32;
  const int64_t count = defined ? losses.shape().elements() : 0;
  const bool whole = count == 1 && range.count != 1;
  if (whole && shards > 1) {
    refuse("the loss of a shard of " + std::to_string(range.count) +
               " observations is one value; losses across observations are accepted only if the "
               "mini-batch is one shard, but it has " +
               std::to_string(shards),
           "return one value for each observation (no ops::mean or ops::sum), or set shard_size to "
           "the size of the mini-batch");
  }
  if (!whole && count != range.count) {
    refuse("expected a loss of " + std::to_string(range.count) +
           " values, one f32 for each observation of the shard, received " +
           (losses.defined() ? losses.spec().to_string() : "an undefined tensor"));
  }
  return whole;
}

}  // namespace shards

using shards::check_losses;

Tensor Shard::State::sums_over_steps(const Tensor& losses) const {
  const size_t of = counted();
  const Tensor& own = rows[*lengths_at(of)];
  const int64_t n = range.count, steps = rows[of].shape()[1];
  if (!losses.defined() || losses.dtype() != DType::f32 || !(losses.shape() == Shape{n, steps})) {
    shards::refuse("expected a loss by step of " + std::to_string(n) + " x " +
                       std::to_string(steps) + " values, one f32 for each step of the shard, " +
                       "received " +
                       (losses.defined() ? losses.spec().to_string() : "an undefined tensor"),
                   "without by_step in the loss of the data it has one value for each observation");
  }
  return ops::sum(ops::where(ops::step_mask(own, steps), losses, 0), {1});
}

int64_t Shard::State::terms() const {
  if (!by_step) return range.count;
  const Tensor own = on_host(rows[*lengths_at(counted())]);
  const auto* const each = own.data<int32_t>();
  return std::accumulate(each, each + range.count, int64_t{0});
}

Tensor Shard::State::losses_of(const ShardLoss& loss, Shard& shard) const {
  try {
    const Tensor losses = loss(shard);
    return by_step ? sums_over_steps(losses) : losses;
  } catch (const ops::OutsideIndex& e) {
    if (e.rows() != shard.size()) throw;
    throw InvalidArgument("[sharded_value_and_gradient] observation " +
                              std::to_string(shard.first() + e.row()) +
                              " of the mini-batch: " + e.what(),
                          e.hint());
  }
}

std::vector<float> evaluate_loss(Network& network, const ShardLoss& loss,
                                 const std::vector<Tensor>& batch) {
  return evaluate_loss(network, TrainingLoss{loss}, batch, {});
}

std::vector<float> evaluate_loss(Network& network, const TrainingLoss& loss,
                                 const std::vector<Tensor>& batch,
                                 const std::vector<Tensor>& lengths) {
  Shard::State state{.network = network,
                     .range = {0, batch.at(0).shape()[0]},
                     .step = {},
                     .rows = batch,
                     .parameters = {},
                     .used = {},
                     .by_step = loss.by_step};
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (!lengths[i].defined()) continue;
    state.lengths.push_back(i);
    state.rows.push_back(lengths[i]);
  }
  Shard shard(state);
  const LimitedForward limit(ForwardLimit::carry_refused);
  const Tensor found = loss.function(shard);
  const Tensor losses = loss.by_step ? state.sums_over_steps(found) : found;
  check_losses(losses, state.range, 2);
  return losses.to_vector();
}

}  // namespace lockstep
