// Losses and gradients, shard by shard: see custom_loop.h.
#include <cmath>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/ops/sum.h"
#include "lockstep/train/shard_group_state.h"

namespace lockstep {

using namespace detail;

namespace {

// Adds the gradients of learnables that a loss used by itself to those of the plans.
void add_direct(const GradientLayout& layout, const std::vector<size_t>& learnables,
                std::span<const Tensor> gradients, const Tensor& all) {
  for (size_t i = 0; i < learnables.size(); ++i) {
    const auto& entry = layout.entries[learnables[i]];
    const Tensor term = convert(gradients[i], entry.spec);
    float* const sum = all.data<float>() + entry.offset / sizeof(float);
    kernels::table_for({}).add(sum, static_cast<const float*>(term.raw()), sum,
                               term.bytes() / sizeof(float), nullptr);
  }
}

// What a loss returned, added up.
void take_losses(const Tensor& losses, const ShardRange& range, size_t shards,
                 ShardResult& result) {
  const bool defined = losses.defined() && losses.dtype() == DType::f32;
  const int64_t count = defined ? losses.shape().elements() : 0;
  result.whole = count == 1 && range.size != 1;
  if (result.whole && shards > 1) {
    refuse_shards(
        "the loss of a shard of " + std::to_string(range.size) +
            " observations is one value; losses across observations are taken only where the "
            "mini-batch is one shard, here it is " +
            std::to_string(shards),
        "return one value for each observation (no ops::mean or ops::sum), or give shard_size "
        "the size of the mini-batch");
  }
  if (!result.whole && count != range.size) {
    refuse_shards("a loss of " + std::to_string(range.size) +
                  " values wanted, one f32 for each "
                  "observation of the shard, received " +
                  (losses.defined() ? losses.spec().to_string() : "an undefined tensor"));
  }
  const std::vector<float> values = losses.to_vector();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    result.loss += value;
    if (std::isfinite(value)) continue;
    result.last_not_finite = range.first + static_cast<int64_t>(i);
    if (result.not_finite >= 0) continue;
    result.not_finite = result.last_not_finite;
    result.found = value;
  }
}

int64_t rows_of(const std::vector<Tensor>& batch) {
  if (batch.empty()) refuse_shards("the mini-batch has no tensors");
  for (size_t i = 0; i < batch.size(); ++i) {
    const Tensor& t = batch[i];
    if (t.defined() && t.device().is_cpu() && t.shape().rank() > 0 && t.shape()[0] > 0 &&
        t.shape()[0] == batch[0].shape()[0]) {
      continue;
    }
    refuse_shards("tensor " + std::to_string(i) +
                  " of the mini-batch must have as many rows as the first "
                  "one, at least one, on the CPU; received " +
                  (t.defined() ? t.spec().to_string() + " on " + to_string(t.device())
                               : "an undefined tensor"));
  }
  return batch[0].shape()[0];
}

// Rows of a row-major tensor, as a view.
Tensor rows(const Tensor& tensor, const ShardRange& range) {
  std::vector<int64_t> dims = tensor.shape().dims();
  const size_t row = tensor.bytes() / static_cast<size_t>(dims[0]);
  dims[0] = range.size;
  return Tensor::view(
      static_cast<std::byte*>(tensor.raw()) + static_cast<size_t>(range.first) * row,
      {Shape(dims), tensor.dtype(), nullptr}, std::make_shared<const Tensor>(tensor));
}

}  // namespace

ValueAndGradients sharded_value_and_gradient(const ShardLoss& loss,
                                             const std::vector<Tensor>& batch, ShardGroup& group,
                                             int64_t iteration) {
  const ArithmeticMode mode;
  ShardGroup::State& g = *group.state_;
  if (iteration < 1)
    refuse_shards("iterations count from 1, received " + std::to_string(iteration));
  const int64_t n = rows_of(batch);
  std::vector<Tensor> plain;
  for (const auto& t : batch) plain.push_back(t.to_row_major());
  const auto shards = cut_into_shards(n, g.shard_size);
  if (g.books) g.books->begin_call();
  g.prepare(shards, batch[0].dtype() == DType::u8);
  const ShardBookkeeper lead(g.books.get(), 0);
  lead(&ShardGroupBooks::plans);
  const std::vector<Tensor> learnables = g.network.learnable_values();

  const TensorSpec flat{Shape{static_cast<int64_t>(g.layout.bytes / sizeof(float))}, DType::f32,
                        nullptr};
  std::vector<ShardResult> results(shards.size());
  g.compare_calls(n, iteration);
  const std::vector<LeafRun> runs =
      deal_leaves(static_cast<int64_t>(shards.size()),
                  std::vector<double>(static_cast<size_t>(g.members.size()), 1.0));
  const LeafRun own = runs[static_cast<size_t>(g.members.rank())];
  g.sum->begin(static_cast<int64_t>(shards.size()), runs);
  const auto compute = [&](int64_t i, int thread, const ArithmeticMode& fixed) {
    const int64_t j = own.first + i;
    const ShardRange range = shards[static_cast<size_t>(j)];
    ShardBookkeeper book(g.books.get(), thread);
    book(&ShardGroupBooks::waiting);
    Shard::State state{.group = g,
                       .worker = g.workers[static_cast<size_t>(thread)],
                       .book = book,
                       .range = range,
                       .step = {g.seed, static_cast<uint64_t>(iteration), range.first},
                       .rows = {},
                       .learnables = Tensor::view(g.sum->result(), flat, nullptr),
                       .used = {},
                       .result = {}};
    for (const auto& t : plain) state.rows.push_back(rows(t, range));
    Tape tape;
    tape.watch(state.learnables);
    tape.watch(learnables);
    Shard shard(state);
    const Tensor losses = loss(shard);
    take_losses(losses, range, shards.size(), state.result);
    // A part that is a sum has the derivative 1 for each of its terms.
    const Tensor total = state.result.whole ? losses : ops::sum(losses);
    std::vector<size_t> direct;
    std::vector<Tensor> wanted{state.learnables};
    for (size_t p = 0; p < learnables.size(); ++p) {
      if (!tape.reads(learnables[p])) continue;
      direct.push_back(p);
      wanted.push_back(learnables[p]);
    }
    const auto refuse_constant = [] {
      refuse_shards("the loss does not depend on the network's learnables",
                    "compute it from shard.forward(), by ops of lockstep::ops");
    };
    if (!tape.tracks({&total, 1}) && !tape.from_gradients(total)) refuse_constant();
    const std::vector<Tensor> gradients = tape.gradient(total, wanted);
    if (!state.reached && direct.empty()) refuse_constant();
    add_direct(g.layout, direct, std::span(gradients).subspan(1), gradients[0]);
    fixed.check();
    book(&ShardGroupBooks::losses);
    g.sum->add(j, gradients[0].data<float>());
    book(&ShardGroupBooks::sums);
    results[static_cast<size_t>(j)] = std::move(state.result);
    ++g.shards_by_thread[static_cast<size_t>(thread)];
  };
  for_each_shard(g.pool, own.count, compute, 0,
                 [&g](int thread, const std::atomic<int>& busy) { g.rest(thread, busy); });
  lead(&ShardGroupBooks::waiting);
  g.sum->finish(TimeLimit(g.limit));
  g.exchange(results, runs);
  lead(&ShardGroupBooks::sums);

  std::vector<double> losses;
  for (const auto& result : results) {
    losses.push_back(result.loss);
    if (result.not_finite < 0) continue;
    // Batch normalisation spreads one such value over the observations of its shard.
    const std::string first = std::to_string(result.not_finite);
    const std::string rows =
        result.not_finite == result.last_not_finite
            ? "observation " + first
            : "observations " + first + " to " + std::to_string(result.last_not_finite);
    throw Error("[sharded_value_and_gradient] the loss of " +
                    (result.whole ? "the mini-batch" : rows + " of the mini-batch") + " is " +
                    std::to_string(result.found) + " in iteration " + std::to_string(iteration),
                "a lower learning rate often helps");
  }
  // A loss across observations is divided by nothing.
  const double observations = results[0].whole ? 1 : static_cast<double>(n);
  g.follow(results);
  lead(&ShardGroupBooks::statistics);
  std::vector<Tensor> gradients = g.mean_gradients(observations);
  lead(&ShardGroupBooks::gradients);
  if (g.books) g.books->complete_call();
  return {tree_sum(losses) / observations, std::move(gradients)};
}

}  // namespace lockstep
