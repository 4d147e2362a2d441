// Networks and their plans, by shard: see custom_loop.h.
#include <algorithm>
#include <cstring>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/train/pass_times.h"
#include "lockstep/train/shard_group_state.h"

namespace lockstep {
namespace {

constexpr int64_t kShardSize = 16;

}  // namespace

using namespace detail;

ShardGroup::State::State(Network& n, const ShardGroupOptions& options, Group* group)
    : network(n),
      alone(group ? nullptr : std::move(LocalGroup::of_threads({.size = 1}).front())),
      members(group ? *group : *alone),
      limit(options.limit),
      pool(options.threads == 0 ? std::min(available_cores(), 1024) : options.threads),
      shard_size(options.shard_size == 0 ? kShardSize : options.shard_size),
      seed(options.seed),
      workers(static_cast<size_t>(pool.size())),
      shards_by_thread(static_cast<size_t>(pool.size()), 0) {
  for (size_t t = 0; t < workers.size(); ++t) workers[t].thread = static_cast<int>(t);
  if (options.profile) books = std::make_unique<ShardGroupBooks>(pool.size());
}

const ShardPlan& ShardGroup::State::plan(const PlanKey& key) {
  const std::lock_guard lock(mutex);
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  LoweredNetwork lowered = network.lower(key.n, {key.training, key.pixels, key.outputs});
  ShardPlan made;
  PlanOptions options;
  options.gradients = true;
  options.input_gradients = key.input_gradients;
  options.output_gradients = lowered.outputs.size() > 1;
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

std::vector<uint64_t> ShardGroup::State::learnable_ids() const {
  std::vector<uint64_t> ids;
  for (const auto& l : network.learnables()) ids.push_back(l.value.id());
  return ids;
}

// Before threads begin: the plan of the largest shard decides how gradients lie, not whoever comes
// first.
void ShardGroup::State::prepare(const std::vector<ShardRange>& shards, bool pixels) {
  if (!network.initialized()) refuse_shards("the network is not initialized");
  if (!network.device().is_cpu()) {
    throw Unsupported("[sharded_value_and_gradient] the network lies on " +
                          to_string(network.device()) + ", shards are computed on the CPU",
                      "network.to(Device{}), or value_and_gradient() there");
  }
  const auto count = static_cast<int64_t>(shards.size());
  if (!sum || !is_present()) {
    for (auto& worker : workers) {
      worker.runs.clear();
      worker.calls.clear();
    }
    if (books) books->passes.clear();
    plans.clear();
    layout = {};
    layout = plan({shards[0].size, true, pixels, false, {}}).plan->gradient_layout();
    learnables = learnable_ids();
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
  if (books) {
    for (const auto& [key, made] : plans) books->open(*made.plan);
  }
  // Values may have changed since the last call. What has not must stay untouched while threads
  // run, where a loss asks this network by forward(), too.
  PackedParameters& packed = network.packed();
  pool.for_each(packed.count(), [&](int64_t i, int thread) {
    const ShardBookkeeper book(books.get(), thread);
    book(&ShardGroupBooks::waiting);
    packed.refresh(static_cast<int>(sums->by_size()[static_cast<size_t>(i)]));
    book(&ShardGroupBooks::plans);
  });
}

void ShardGroup::State::rest(int thread, const std::atomic<int>& busy) const {
  if (!meanwhile) return;
  const ShardBookkeeper book(books.get(), thread);
  book(&ShardGroupBooks::waiting);
  const ArithmeticMode mode;
  // Other members must not wait for what only the next call needs.
  const bool many = members.size() > 1;
  for (;;) {
    const bool ahead = busy.load(std::memory_order_relaxed) > 0;
    if ((!ahead && many) || !meanwhile(ahead)) break;
  }
  book(&ShardGroupBooks::meanwhile);
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
    refuse_shards("member " + std::to_string(r) + " of the group calls for iteration " +
                      std::to_string(theirs.at(1)) + " with " + std::to_string(theirs.at(0)) +
                      " observations, this one for iteration " + std::to_string(iteration) +
                      " with " + std::to_string(n) + ", or the networks or options differ",
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
  constexpr size_t most = size_t{1} << 14;  // elements that a thread divides at a time
  struct Piece {
    const float* from;
    float* to;
    size_t count;
  };
  std::vector<Tensor> gradients(sums->size());
  std::vector<Piece> pieces;
  for (size_t p : sums->by_size()) {
    gradients[p] = Tensor(network.learnables()[p].value.shape(), DType::f32);
    for (size_t first = 0; first < sums->count(p); first += most) {
      pieces.push_back({sums->values(p) + first, gradients[p].data<float>() + first,
                        std::min(most, sums->count(p) - first)});
    }
  }
  pool.for_each(static_cast<int64_t>(sums->size()), [&](int64_t i, int thread) {
    const ShardBookkeeper book(books.get(), thread);
    book(&ShardGroupBooks::waiting);
    sums->convert(sums->by_size()[static_cast<size_t>(i)]);
    book(&ShardGroupBooks::gradients);
  });
  const auto divisor = static_cast<float>(observations);
  pool.for_each(static_cast<int64_t>(pieces.size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    const ShardBookkeeper book(books.get(), thread);
    book(&ShardGroupBooks::waiting);
    const Piece& piece = pieces[static_cast<size_t>(i)];
    for (size_t k = 0; k < piece.count; ++k) piece.to[k] = piece.from[k] / divisor;
    mode.check();
    book(&ShardGroupBooks::gradients);
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
      refuse_shards("shard " + std::to_string(j) +
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

// What as many runs take, by the medians of the threads that have some.
void ShardGroup::State::set_floors() {
  PassFloors floors;
  for (const auto& [key, made] : plans) {
    const auto accounts = books->passes.find(made.plan.get());
    if (accounts == books->passes.end()) continue;
    std::vector<PlanRun*> runs;
    double calls = 0;
    for (ShardWorker& worker : workers) {
      const auto found = worker.runs.find(&made);
      if (found == worker.runs.end() || found->second.empty()) continue;
      runs.push_back(found->second.front().get());
      calls += static_cast<double>(worker.calls[&made]);
    }
    floors.add(accounts->second, calls, time_passes(pool, *made.plan, runs, {seed, 1, 0}));
  }
  floors.set(books->ledger);
}

void ShardGroup::work_meanwhile(std::function<bool(bool ahead)> work) {
  state_->meanwhile = std::move(work);
}

void ShardGroup::end_iteration() {
  if (state_->books) state_->books->end_iteration();
}

std::optional<Profile> ShardGroup::profile() {
  State& s = *state_;
  if (!s.books) return std::nullopt;
  s.books->end_iteration();
  // Runs of a network that was initialized anew, or moved, have memory that is gone.
  if (s.is_present()) s.set_floors();
  Profile profile = s.books->ledger.finish(0);
  if (profile.iterations == 0) return std::nullopt;
  return profile;
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
    refuse_shards("the mini-batch has " + std::to_string(state_.rows.size()) + " tensors, number " +
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
  s.book(&ShardGroupBooks::losses);
  const int64_t n = s.group.network.check_inputs(inputs);
  const bool differentiable = Tape::any_tracks(inputs);
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
  s.book(&ShardGroupBooks::plans);
  if (s.group.books) ++s.worker.calls[&plan];
  const auto forward = [run, inputs, &plan, &s] {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor plain = inputs[i].to_row_major();
      std::memcpy(run->input(static_cast<int>(i)), plain.raw(), plain.bytes());
    }
    s.book(&ShardGroupBooks::inputs);
    run->forward(s.step, s.book.watch(plan.plan.get()));
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

  s.book(&ShardGroupBooks::results);
  std::vector<Tensor> tracked = inputs;
  tracked.push_back(s.learnables);
  Tape::record_everywhere(
      tracked, outputs,
      [run, forward, &plan, &s, tracked, differentiable, stale = false](
          const std::vector<Tensor>& diffs, const std::vector<bool>& wanted) mutable {
        s.book(&ShardGroupBooks::losses);
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
        s.book(&ShardGroupBooks::inputs);
        run->backward(s.step, s.book.watch(plan.plan.get()));
        s.reached = true;
        std::vector<Tensor> results(tracked.size() + diffs.size());
        for (size_t k = 0; k < diffs.size(); ++k) {
          const float* const from = run->output_gradient(static_cast<int>(k));
          if (!from || !wanted[tracked.size() + k]) continue;
          Tensor& result = results[tracked.size() + k];
          result = Tensor(plan.outputs[k], DType::f32);
          std::memcpy(result.raw(), from, result.bytes());
        }
        for (size_t i = 0; differentiable && i + 1 < tracked.size(); ++i) {
          const float* const from = run->input_gradient(static_cast<int>(i));
          if (!wanted[i] || !from) continue;
          results[i] = Tensor(tracked[i].shape(), DType::f32);
          std::memcpy(results[i].raw(), from, results[i].bytes());
        }
        results[tracked.size() - 1] =
            Tensor::view(run->gradients(), tracked.back().spec(), nullptr);
        s.book(&ShardGroupBooks::results);
        return results;
      },
      Tape::Outputs::linked);
  return outputs;
}

}  // namespace lockstep
