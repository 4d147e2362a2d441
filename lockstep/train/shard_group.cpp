// Sharded values and gradients: see custom_loop.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/ops/sum.h"
#include "lockstep/parallel/comm/deal.h"
#include "lockstep/parallel/comm/group_sum.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/gradient_sums.h"
#include "lockstep/train/shard_plans.h"

namespace lockstep {
namespace {

constexpr int64_t kShardSize = 16;

// The network compiled for so many observations.
struct ShardPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<Shape> outputs;
  std::vector<MovingStatistics> statistics;
};

struct PlanKey {
  int64_t n = 0;
  bool training = true, pixels = false, input_gradients = false;
  std::vector<std::string> outputs;
  auto operator<=>(const PlanKey&) const = default;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(n, training, pixels, input_gradients, outputs);
  }
};

// The batch statistics of one forward run.
struct FollowedRun {
  PlanKey key;
  int64_t rows = 0;
  std::vector<float> values;  // of each statistic first all means, then all variances

  template <class Archive>
  void serialize(Archive& archive) {
    archive(key, rows, values);
  }
};

// What a shard leaves behind.
struct ShardResult {
  double loss = 0;     // sum over rows
  bool whole = false;  // one value for all rows
  // Rows in the mini-batch: the first whose loss is no finite number, and the last; -1: none.
  int64_t not_finite = -1, last_not_finite = -1;
  double found = 0;  // at the first
  std::vector<FollowedRun> runs;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(loss, whole, not_finite, last_not_finite, found, runs);
  }
};

struct Worker {
  std::map<const ShardPlan*, std::vector<std::unique_ptr<PlanRun>>> runs;
};

[[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) {
  throw InvalidArgument("[sharded_value_and_gradient] " + what, hint);
}

}  // namespace

struct ShardGroup::State {
  State(Network& n, const ShardGroupOptions& options, Group* group)
      : network(n),
        alone(group ? nullptr : std::move(LocalGroup::of_threads({.size = 1}).front())),
        members(group ? *group : *alone),
        limit(options.limit),
        pool(options.threads == 0 ? std::min(available_cores(), 1024) : options.threads),
        shard_size(options.shard_size == 0 ? kShardSize : options.shard_size),
        seed(options.seed),
        workers(static_cast<size_t>(pool.size())),
        shards_by_thread(static_cast<size_t>(pool.size()), 0) {}

  Network& network;
  const std::unique_ptr<Group> alone;
  Group& members;
  const double limit;
  ThreadPool pool;
  const int64_t shard_size;
  const uint64_t seed;

  // Made for these learnables: a network that is initialized anew has others.
  std::vector<uint64_t> learnables;
  std::mutex mutex;  // of `plans`
  std::map<PlanKey, ShardPlan> plans;
  GradientLayout layout;
  int64_t most_shards = 0;  // of the sum
  std::unique_ptr<GroupSum> sum;
  std::optional<GradientSums> sums;
  std::vector<Worker> workers;  // by thread
  std::vector<int64_t> shards_by_thread;

  void prepare(const std::vector<ShardRange>& shards, bool pixels);
  void compare_calls(int64_t n, int64_t iteration);
  void exchange(std::vector<ShardResult>& results, const std::vector<LeafRun>& runs);
  const ShardPlan& plan(const PlanKey& key);
  std::vector<Tensor> mean_gradients(double observations);
  void follow(const std::vector<ShardResult>& results);
};

struct Shard::State {
  ShardGroup::State& group;
  Worker& worker;
  ShardRange range;
  kernels::StepInfo step;
  std::vector<Tensor> rows;
  // Stands for all learnables on the tape: its gradient is theirs, as plans lay it out.
  Tensor learnables;
  std::map<const ShardPlan*, size_t> used;  // runs of this shard so far
  ShardResult result;
  bool reached = false;  // by the gradient
};

const ShardPlan& ShardGroup::State::plan(const PlanKey& key) {
  const std::lock_guard lock(mutex);
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  LoweredNetwork lowered = network.lower(key.n, {key.training, key.pixels, key.outputs});
  ShardPlan made;
  PlanOptions options;
  options.gradients = true;
  options.input_gradients = key.input_gradients;
  for (int value : lowered.outputs) {
    made.outputs.push_back(lowered.graph.shape(value));
    options.seeds.push_back(lowered.graph.mark_output(value));
  }
  if (!layout.entries.empty()) options.gradient_layout = &layout;
  made.statistics = lowered.mark_statistics();
  made.plan =
      std::make_shared<const Plan>(lowered.graph, network.learnable_shapes(), options, Device{});
  return plans.emplace(key, std::move(made)).first->second;
}

// Before threads begin: the plan of the largest shard decides how gradients lie, not whoever comes
// first.
void ShardGroup::State::prepare(const std::vector<ShardRange>& shards, bool pixels) {
  if (!network.initialized()) refuse("the network is not initialized");
  if (!network.device().is_cpu()) {
    throw Unsupported("[sharded_value_and_gradient] the network lies on " +
                          to_string(network.device()) + ", shards are computed on the CPU",
                      "network.to(Device{}), or value_and_gradient() there");
  }
  std::vector<uint64_t> present;
  for (const auto& l : network.learnables()) present.push_back(l.value.id());
  const auto count = static_cast<int64_t>(shards.size());
  if (!sum || present != learnables) {
    for (auto& worker : workers) worker.runs.clear();
    plans.clear();
    layout = {};
    layout = plan({shards[0].size, true, pixels, false, {}}).plan->gradient_layout();
    learnables = std::move(present);
    most_shards = 0;
  }
  if (count > most_shards) {
    most_shards = count;
    sums.reset();
    sum = std::make_unique<GroupSum>(
        members, pool,
        GroupSumOptions{.count = layout.bytes / sizeof(float), .most_leaves = most_shards});
    sums.emplace(layout, sum->result());
  }
  // Values may have changed since the last call. What has not must stay untouched while threads
  // run, where a loss asks this network by forward(), too.
  PackedParameters& packed = network.packed();
  pool.for_each(packed.count(), [&](int64_t p, int) { packed.refresh(static_cast<int>(p)); });
}

// Whoever calls with something else than the others is found before anything is added.
void ShardGroup::State::compare_calls(int64_t n, int64_t iteration) {
  if (members.size() == 1) return;
  const std::vector<uint64_t> call{static_cast<uint64_t>(n), static_cast<uint64_t>(iteration),
                                   static_cast<uint64_t>(shard_size), seed, layout.bytes};
  const Bytes own = encode(call);
  const auto all = members.gather_each(own, TimeLimit(limit));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] == own) continue;
    const auto theirs = decode<std::vector<uint64_t>>(all[r]);
    refuse("member " + std::to_string(r) + " of the group calls for iteration " +
               std::to_string(theirs.at(1)) + " with " + std::to_string(theirs.at(0)) +
               " observations, this one for iteration " + std::to_string(iteration) + " with " +
               std::to_string(n) + ", or the networks or options differ",
           "all members call with the same mini-batches, options and networks");
  }
}

// What the other members' shards left behind.
void ShardGroup::State::exchange(std::vector<ShardResult>& results,
                                 const std::vector<LeafRun>& runs) {
  if (members.size() == 1) return;
  const auto own = runs[static_cast<size_t>(members.rank())];
  const auto first = results.begin() + own.first;
  const auto parts = members.gather_each(encode(std::vector<ShardResult>(first, first + own.count)),
                                         TimeLimit(limit));
  for (size_t r = 0; r < parts.size(); ++r) {
    auto theirs = decode<std::vector<ShardResult>>(parts[r]);
    if (static_cast<int64_t>(theirs.size()) != runs[r].count) {
      throw InternalError("[sharded_value_and_gradient] member " + std::to_string(r) +
                          " has other shards");
    }
    std::move(theirs.begin(), theirs.end(), results.begin() + runs[r].first);
  }
}

std::vector<Tensor> ShardGroup::State::mean_gradients(double observations) {
  std::vector<Tensor> gradients(sums->size());
  const auto divisor = static_cast<float>(observations);
  pool.for_each(static_cast<int64_t>(sums->size()), [&](int64_t i, int) {
    const ArithmeticMode mode;
    const size_t p = sums->by_size()[static_cast<size_t>(i)];
    sums->convert(p);
    gradients[p] = Tensor(network.learnables()[p].value.shape(), DType::f32);
    const float* const from = sums->values(p);
    float* const to = gradients[p].data<float>();
    for (size_t k = 0; k < sums->count(p); ++k) to[k] = from[k] / divisor;
    mode.check();
  });
  return gradients;
}

void ShardGroup::State::follow(const std::vector<ShardResult>& results) {
  const std::vector<FollowedRun>& first = results[0].runs;
  for (size_t j = 1; j < results.size(); ++j) {
    bool alike = results[j].runs.size() == first.size();
    for (size_t r = 0; alike && r < first.size(); ++r) {
      alike = results[j].runs[r].values.size() == first[r].values.size();
    }
    if (!alike) {
      refuse("shard " + std::to_string(j) +
                 " ran the network otherwise than shard 0, so batch "
                 "statistics cannot be combined",
             "run it equally often, with the same options");
    }
  }
  for (size_t r = 0; r < first.size(); ++r) {
    std::vector<ShardRange> rows;
    std::vector<const float*> values;
    for (const auto& result : results) {
      rows.push_back({0, result.runs[r].rows});
      values.push_back(result.runs[r].values.data());
    }
    follow_statistics(plan(first[r].key).statistics, rows, values, [&](int k) {
      return network.state()[static_cast<size_t>(k)].value.data<float>();
    });
  }
}

namespace {

void check(const Network& network, const ShardGroupOptions& options) {
  if (options.threads < 0 || options.shard_size < 0) {
    throw InvalidArgument("[ShardGroup] threads and shard_size must be >= 0, received " +
                          std::to_string(options.threads) + " and " +
                          std::to_string(options.shard_size));
  }
  if (!(options.limit > 0)) throw InvalidArgument("[ShardGroup] limit must be > 0");
  if (!network.initialized()) throw InvalidArgument("[ShardGroup] the network is not initialized");
}

}  // namespace

ShardGroup::ShardGroup(Network& network, const ShardGroupOptions& options) {
  check(network, options);
  state_ = std::make_unique<State>(network, options, nullptr);
}

ShardGroup::ShardGroup(Network& network, const ShardGroupOptions& options, Group& members) {
  check(network, options);
  state_ = std::make_unique<State>(network, options, &members);
}

ShardGroup::~ShardGroup() = default;
Network& ShardGroup::network() const { return state_->network; }
ThreadPool& ShardGroup::pool() const { return state_->pool; }
const std::vector<int64_t>& ShardGroup::shards_by_thread() const {
  return state_->shards_by_thread;
}

int64_t Shard::first() const { return state_.range.first; }
int64_t Shard::size() const { return state_.range.size; }
const kernels::StepInfo& Shard::step() const { return state_.step; }

const Tensor& Shard::operator[](size_t i) const {
  if (i >= state_.rows.size()) {
    refuse("the mini-batch has " + std::to_string(state_.rows.size()) + " tensors, number " +
           std::to_string(i) + " is wanted");
  }
  return state_.rows[i];
}

Tensor Shard::forward(const Tensor& input, const ShardForwardOptions& options) {
  return forward_all({input}, options).front();
}

std::vector<Tensor> Shard::forward_all(const std::vector<Tensor>& inputs,
                                       const ShardForwardOptions& options) {
  State& s = state_;
  Tape* const tape = Tape::current();
  const int64_t n = s.group.network.check_inputs(inputs);
  const bool differentiable = tape->tracks(inputs);
  const PlanKey key{n, options.training, inputs[0].dtype() == DType::u8, differentiable,
                    options.outputs};
  const ShardPlan& plan = s.group.plan(key);
  auto& runs = s.worker.runs[&plan];
  const size_t number = s.used[&plan]++;
  if (runs.size() == number) {
    runs.push_back(std::make_unique<PlanRun>(plan.plan, s.group.network.packed(),
                                             s.group.network.state_pointers()));
  }
  PlanRun* const run = runs[number].get();
  const auto forward = [run, inputs, step = s.step] {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor plain = inputs[i].to_row_major();
      std::memcpy(run->input(static_cast<int>(i)), plain.raw(), plain.bytes());
    }
    run->forward(step);
  };
  forward();

  std::vector<Tensor> outputs;
  for (const Shape& shape : plan.outputs) {
    Tensor output(shape, DType::f32);
    std::memcpy(output.raw(), run->output(static_cast<int>(outputs.size())), output.bytes());
    outputs.push_back(std::move(output));
  }
  if (!plan.statistics.empty()) {
    FollowedRun followed{key, n, {}};
    for (const MovingStatistics& of : plan.statistics) {
      for (int output : {of.mean_output, of.variance_output}) {
        const float* const from = run->output(output);
        followed.values.insert(followed.values.end(), from, from + of.channels);
      }
    }
    s.result.runs.push_back(std::move(followed));
  }

  std::vector<Tensor> tracked = inputs;
  tracked.push_back(s.learnables);
  if (!tape->tracks(tracked)) return outputs;  // within another tape of the loss's own
  tape->record(tracked, outputs,
               [run, forward, &plan, &s, tracked, differentiable, stale = false](
                   const std::vector<Tensor>& diffs, const std::vector<bool>& wanted) mutable {
                 // A backward run reuses the memory of what it read: a second one starts anew.
                 if (stale) forward();
                 stale = true;
                 for (size_t k = 0; k < diffs.size(); ++k) {
                   float* const seed = run->seed(static_cast<int>(k));
                   if (diffs[k].defined()) {
                     const Tensor plain = diffs[k].to_row_major();
                     std::memcpy(seed, plain.raw(), plain.bytes());
                   } else {
                     std::fill_n(seed, plan.outputs[k].elements(), 0.0f);
                   }
                 }
                 run->backward(s.step);
                 s.reached = true;
                 std::vector<Tensor> results(tracked.size());
                 for (size_t i = 0; differentiable && i + 1 < tracked.size(); ++i) {
                   const float* const from = run->input_gradient(static_cast<int>(i));
                   if (!wanted[i] || !from) continue;
                   results[i] = Tensor(tracked[i].shape(), DType::f32);
                   std::memcpy(results[i].raw(), from, results[i].bytes());
                 }
                 results.back() = Tensor::view(run->gradients(), tracked.back().spec(), nullptr);
                 return results;
               });
  return outputs;
}

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
    refuse("the loss of a shard of " + std::to_string(range.size) +
               " observations is one value; losses across observations are taken only where the "
               "mini-batch is one shard, here it is " +
               std::to_string(shards),
           "return one value for each observation (no ops::mean or ops::sum), or give shard_size "
           "the size of the mini-batch");
  }
  if (!result.whole && count != range.size) {
    refuse("a loss of " + std::to_string(range.size) +
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
  if (batch.empty()) refuse("the mini-batch has no tensors");
  for (size_t i = 0; i < batch.size(); ++i) {
    const Tensor& t = batch[i];
    if (t.defined() && t.device().is_cpu() && t.shape().rank() > 0 && t.shape()[0] > 0 &&
        t.shape()[0] == batch[0].shape()[0]) {
      continue;
    }
    refuse("tensor " + std::to_string(i) +
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
  if (iteration < 1) refuse("iterations count from 1, received " + std::to_string(iteration));
  const int64_t n = rows_of(batch);
  std::vector<Tensor> plain;
  for (const auto& t : batch) plain.push_back(t.to_row_major());
  const auto shards = cut_into_shards(n, g.shard_size);
  g.prepare(shards, batch[0].dtype() == DType::u8);
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
    Shard::State state{.group = g,
                       .worker = g.workers[static_cast<size_t>(thread)],
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
    const std::vector<Tensor> gradients = tape.gradient(total, wanted);
    if (!state.reached && direct.empty()) {
      refuse("the loss does not depend on the network's learnables",
             "compute it from shard.forward(), by ops of lockstep::ops");
    }
    add_direct(g.layout, direct, std::span(gradients).subspan(1), gradients[0]);
    fixed.check();
    g.sum->add(j, gradients[0].data<float>());
    results[static_cast<size_t>(j)] = std::move(state.result);
    ++g.shards_by_thread[static_cast<size_t>(thread)];
  };
  if (own.count > 0) for_each_shard(g.pool, own.count, compute);
  g.sum->finish(TimeLimit(g.limit));
  g.exchange(results, runs);

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
  return {tree_sum(losses) / observations, g.mean_gradients(observations)};
}

}  // namespace lockstep
