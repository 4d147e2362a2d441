#include "lockstep/train/sharded_step.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/comm/deal.h"
#include "lockstep/parallel/comm/tree.h"
#include "lockstep/train/gradient_sums.h"
#include "lockstep/train/gradient_threshold.h"
#include "lockstep/train/pass_times.h"
#include "lockstep/train/shard_check.h"
#include "lockstep/train/shard_plans.h"
#include "lockstep/train/shard_words.h"
#include "lockstep/train/state_digest.h"
#include "lockstep/train/step_books.h"
#include "lockstep/train/targets.h"

namespace lockstep {
namespace {

constexpr int kScores = ShardPlans::kScores, kLosses = ShardPlans::kLosses;

}  // namespace

struct ShardedStep::State {
  State(Network& n, Solver& v, ThreadPool& p, const TrainingOptions& options, DType inputs,
        StepLedger* ledger)
      : network(n),
        solver(v),
        pool(p),
        shard_size(options.shard_size),
        seed(static_cast<uint64_t>(options.seed)),
        check_frequency(options.check_frequency),
        threshold{options.gradient_threshold, options.gradient_threshold_method},
        class_weights(options.class_weights.begin(), options.class_weights.end()),
        loss_scale(options.scale_of_losses()),
        plans(n, options.dtype(), inputs) {
    if (ledger) books.emplace(*ledger);
  }

  Network& network;
  Solver& solver;
  ThreadPool& pool;
  int64_t shard_size;
  uint64_t seed;
  int64_t check_frequency;
  GradientThreshold threshold;
  std::vector<float> class_weights;
  double loss_scale;
  std::vector<bool> frozen;  // by learnable
  int64_t most_shards = 0;   // of a full mini-batch; threads beyond have nothing to do

  ShardPlans plans;
  std::map<int64_t, std::vector<PlanRun>> runs;  // by size, then by thread
  TreeReduction::Order order = TreeReduction::Order::tree;
  std::unique_ptr<Group> group;
  std::vector<double> loads;
  double limit = 0;  // seconds
  std::function<void(int thread, int64_t shard)> watch;
  std::vector<ShardOfIteration> singled;  // computed alone
  std::function<bool(bool ahead)> meanwhile;
  double shard_seconds = 0;
  std::vector<std::chrono::steady_clock::time_point> ended;  // shards, by thread
  std::unique_ptr<GroupSum> sum;
  std::optional<GradientSums> gradients;
  std::vector<Digest> learnable_digests;
  std::optional<StepBooks> books;

  const StepBooks* kept() const { return books ? &*books : nullptr; }

  // Of the mini-batch at hand.
  std::vector<ShardRange> shards;
  std::vector<LeafRun> dealt;  // by member
  LeafRun own;                 // of them, this member's
  std::vector<int64_t> shards_by_thread;
  std::vector<double> losses;  // by shard
  std::optional<ShardCheck> check;
  std::vector<std::byte> words_again[2];  // of the shard that is computed again

  void make_runs(int64_t size);
  void prepare(const std::vector<ShardRange>& ranges);
  void deal();
  const ShardWords& words(size_t shard) const {
    return *reinterpret_cast<const ShardWords*>(sum->said(static_cast<int64_t>(shard)));
  }
  const float* statistics(size_t shard) const {
    return reinterpret_cast<const float*>(sum->said(static_cast<int64_t>(shard)) +
                                          sizeof(ShardWords));
  }
  // `again`: 0, or the how-manieth time, only to see whether the same comes out.
  void compute_shard(size_t j, int thread, const MiniBatch& batch, int64_t iteration,
                     const ArithmeticMode& mode, int64_t again);
  // Runs body(i) for [0, count), of which some are computed alone, after the others.
  void for_each(int64_t iteration, int64_t count,
                const std::function<void(int64_t, int, const ArithmeticMode&)>& body);
  int64_t shard_of(int64_t i) const { return i < own.count ? own.first + i : check->shard; }
  void rest(int thread, const std::atomic<int>& busy) const;
  size_t word_bytes() const { return shard_word_bytes(plans.statistic_elements()); }
  size_t digests() const { return network.learnables().size() + 1; }
  void note_result(const PlanRun& run, const std::byte* said, int64_t again);
  void compare_results(int64_t iteration) const;
  std::vector<double> cut_gradients(double observations);
  void update_statistics();
};

void ShardedStep::State::make_runs(int64_t size) {
  if (runs.count(size) > 0) return;
  const auto plan = plans.plan(size);
  std::vector<PlanRun> made;
  for (int64_t t = 0; t < std::min<int64_t>(pool.size(), most_shards); ++t) {
    made.emplace_back(plan, network.packed(), network.state_pointers());
    // The loss of a mini-batch is a sum until the one division at the root.
    std::fill_n(made.back().seed(kLosses), size, static_cast<float>(loss_scale));
  }
  runs.emplace(size, std::move(made));
  if (!books) return;
  std::vector<int>& accounts = books->passes[size];
  for (const PlanPass& pass : plan->passes()) {
    using Phase = StepLedger::Phase;
    accounts.push_back(
        books->ledger.account(pass.backward ? Phase::backward : Phase::forward, pass.name));
  }
}

void ShardedStep::State::prepare(const std::vector<ShardRange>& ranges) {
  shards = ranges;
  for (const auto& range : shards) make_runs(range.size);
  losses.assign(shards.size(), 0);
  deal();
}

void ShardedStep::State::deal() {
  if (!group) return;
  dealt = deal_leaves(static_cast<int64_t>(shards.size()), loads);
  own = dealt[static_cast<size_t>(group->rank())];
}

void ShardedStep::State::compute_shard(size_t j, int thread, const MiniBatch& batch,
                                       int64_t iteration, const ArithmeticMode& mode,
                                       int64_t again) {
  const ShardRange range = shards[j];
  PlanRun& run = runs.at(range.size)[static_cast<size_t>(thread)];
  const auto rows = static_cast<size_t>(range.size), first = static_cast<size_t>(range.first);
  const size_t row_bytes = plans.input_bytes();
  Bookkeeper book(kept(), thread, range.size);
  book(&StepAccounts::waiting);
  std::memcpy(run.input(0), batch.inputs().data() + first * row_bytes, rows * row_bytes);
  if (plans.labelled()) {
    std::memcpy(run.input(1), batch.labels.data() + first, rows * sizeof(int32_t));
  } else {
    const auto count = static_cast<size_t>(plans.outputs());
    copy_targets(batch, first * count, rows * count, static_cast<float*>(run.input(1)));
  }

  const kernels::StepInfo step{seed, static_cast<uint64_t>(iteration), range.first};
  book(&StepAccounts::inputs);
  run.forward(step, book.watch());
  const float* loss = run.output(kLosses);
  float* const seeds = run.seed(kLosses);
  std::byte* const words_to = again > 0 ? words_again[static_cast<size_t>(again - 1)].data()
                                        : sum->leaf(static_cast<int64_t>(j));
  auto& said = *reinterpret_cast<ShardWords*>(words_to);
  said = {};
  for (size_t i = 0; i < rows; ++i) {
    double weight = 1;
    if (!class_weights.empty()) {
      weight = static_cast<double>(class_weights[static_cast<size_t>(batch.labels[first + i])]);
      seeds[i] = static_cast<float>(weight * loss_scale);
    }
    said.loss += weight * static_cast<double>(loss[i]);
  }
  if (plans.labelled()) {
    said.correct = count_correct(run.output(kScores), batch.labels.data() + first, range.size,
                                 plans.outputs());
  }
  auto* to = reinterpret_cast<float*>(&said + 1);
  for (const MovingStatistics& s : plans.statistics()) {
    const auto channels = static_cast<size_t>(s.channels);
    to = std::copy_n(run.output(s.mean_output), channels, to);
    to = std::copy_n(run.output(s.variance_output), channels, to);
  }
  book(&StepAccounts::losses);
  fail_point("backward", iteration, static_cast<int64_t>(j));
  run.backward(step, book.watch());
  mode.check();
  corruption_point("gradients", iteration, static_cast<int64_t>(j), run.gradients(),
                   plans.gradient_layout().bytes);
  if (check && check->shard == static_cast<int64_t>(j)) note_result(run, words_to, again);
  if (again > 0) return;
  sum->add(static_cast<int64_t>(j), reinterpret_cast<const float*>(run.gradients()));
  book(&StepAccounts::sums);
  ++shards_by_thread[static_cast<size_t>(thread)];
}

void ShardedStep::State::for_each(
    int64_t iteration, int64_t count,
    const std::function<void(int64_t, int, const ArithmeticMode&)>& body) {
  const int threads = static_cast<int>(std::min<int64_t>(pool.size(), most_shards));
  const auto at_rest = [this](int thread, const std::atomic<int>& busy) {
    ended[static_cast<size_t>(thread)] = std::chrono::steady_clock::now();
    rest(thread, busy);
  };
  if (singled.empty()) return for_each_shard(pool, count, body, threads, at_rest);
  std::vector<int64_t> together, one_by_one;
  for (int64_t i = 0; i < count; ++i) {
    const bool single = std::find(singled.begin(), singled.end(),
                                  ShardOfIteration{iteration, shard_of(i)}) != singled.end();
    (single ? one_by_one : together).push_back(i);
  }
  const auto body_of = [&](int64_t i, int thread, const ArithmeticMode& mode) {
    body(together[static_cast<size_t>(i)], thread, mode);
  };
  for_each_shard(pool, static_cast<int64_t>(together.size()), body_of, threads, at_rest);
  for (const int64_t i : one_by_one) {
    const ArithmeticMode mode;
    body(i, 0, mode);
    ended[0] = std::chrono::steady_clock::now();
  }
}

void ShardedStep::State::rest(int thread, const std::atomic<int>& busy) const {
  if (!meanwhile) return;
  const Bookkeeper book(kept(), thread);
  book(&StepAccounts::waiting);
  // Other members must not wait for what only the next iteration needs.
  const bool alone = group->size() == 1;
  for (;;) {
    const bool ahead = busy.load(std::memory_order_relaxed) > 0;
    if ((!ahead && !alone) || !meanwhile(ahead)) break;
  }
  book(&StepAccounts::meanwhile);
}

// What this member got, for the others: first as the owner, then as one who checks.
void ShardedStep::State::note_result(const PlanRun& run, const std::byte* said, int64_t again) {
  auto* to = reinterpret_cast<Digest*>(sum->own()) + static_cast<size_t>(again) * digests();
  for (const auto& entry : plans.gradient_layout().entries) {
    *to++ = digest_of(run.gradients() + entry.offset, entry.spec.bytes());
  }
  *to = digest_of(said, word_bytes());
}

void ShardedStep::State::compare_results(int64_t iteration) const {
  std::vector<std::string> names;
  for (const auto& l : network.learnables()) names.push_back(l.name);
  lockstep::compare_results(iteration, *check, names, [&](int rank) {
    return reinterpret_cast<const Digest*>(sum->said_by(rank));
  });
}

// Brings the sums into row-major order and cuts them. What each is to be divided by afterwards
// instead of the number of observations.
std::vector<double> ShardedStep::State::cut_gradients(double observations) {
  const auto& table = kernels::table_for({});
  std::vector<std::vector<double>> squares(gradients->size());
  pool.for_each(static_cast<int64_t>(gradients->size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    Bookkeeper book(kept(), thread);
    book(&StepAccounts::waiting);
    const size_t p = gradients->by_size()[static_cast<size_t>(i)];
    gradients->convert(p);
    book(&StepAccounts::layouts);
    if (frozen[p]) {
      // Its gradient moves nothing.
    } else if (threshold.of_elements()) {
      table.limit(gradients->values(p), gradients->count(p), threshold.most(observations), nullptr);
    } else {
      squares[p].resize(kernels::norm_blocks(gradients->count(p)));
      table.block_squares(gradients->values(p), gradients->count(p), squares[p].data(), nullptr);
    }
    mode.check();
    book(&StepAccounts::threshold);
  });
  Bookkeeper(kept(), 0)(&StepAccounts::waiting);
  if (threshold.of_elements()) return std::vector<double>(gradients->size(), observations);
  return threshold.divisors(squares, observations);
}

void ShardedStep::State::update_statistics() {
  std::vector<const float*> values;
  for (size_t j = 0; j < shards.size(); ++j) values.push_back(statistics(j));
  follow_statistics(plans.statistics(), shards, values, [&](int k) {
    return network.state()[static_cast<size_t>(k)].value.data<float>();
  });
}

ShardedStep::ShardedStep(Network& network, Solver& solver, ThreadPool& pool,
                         const TrainingOptions& options, DType inputs, StepLedger* ledger)
    : state_(std::make_unique<State>(network, solver, pool, options, inputs, ledger)) {
  State& s = *state_;
  const auto shards = cut_into_shards(options.mini_batch_size, options.shard_size);
  s.most_shards = static_cast<int64_t>(shards.size());
  s.prepare(shards);
  if (!options.deterministic) s.order = TreeReduction::Order::of_arrival;
  s.shards_by_thread.assign(static_cast<size_t>(pool.size()), 0);
  s.ended.resize(static_cast<size_t>(pool.size()));
  s.learnable_digests.resize(network.learnables().size());
  join(std::move(LocalGroup::of_threads({.size = 1})[0]), {1}, 1);
  for (const auto& l : network.learnables()) s.frozen.push_back(is_frozen(l.name, options.freeze));
  // Copies made for earlier uses of the network may be older than its values.
  network.packed().pack_all();
}

ShardedStep::~ShardedStep() = default;

GroupSumOptions ShardedStep::sum_options() const {
  const State& s = *state_;
  return {.count = s.plans.gradient_layout().bytes / sizeof(float),
          .most_leaves = s.most_shards,
          .leaf_bytes = s.word_bytes(),
          .member_bytes =
              s.check_frequency > 0 ? ShardCheck::kMostResults * s.digests() * sizeof(Digest) : 0,
          .order = s.order};
}

int64_t ShardedStep::check_frequency() const { return state_->check_frequency; }

void ShardedStep::watch(std::function<void(int, int64_t)> watch) {
  state_->watch = std::move(watch);
}

void ShardedStep::compute_alone(std::vector<ShardOfIteration> shards) {
  state_->singled = std::move(shards);
}

bool ShardedStep::work_meanwhile(std::function<bool(bool)> work) {
  state_->meanwhile = std::move(work);
  return true;
}

double ShardedStep::shard_seconds() const { return state_->shard_seconds; }

void ShardedStep::join(std::unique_ptr<Group> group, std::vector<double> loads, double limit) {
  State& s = *state_;
  s.sum.reset();
  s.group = std::move(group);
  s.loads = std::move(loads);
  s.limit = limit;
  auto* const local = dynamic_cast<LocalGroup*>(s.group.get());
  s.sum = local != nullptr ? std::make_unique<GroupSum>(*local, s.pool, sum_options())
                           : std::make_unique<GroupSum>(*s.group, s.pool, sum_options());
  s.gradients.emplace(s.plans.gradient_layout(), s.sum->result());
  for (auto& words : s.words_again) words.resize(s.word_bytes());
  s.deal();
}

StepResult ShardedStep::compute(const MiniBatch& batch, int64_t iteration) {
  State& s = *state_;
  const auto shards = cut_into_shards(batch.size(), s.shard_size);
  check_batch(batch, shards.size(), static_cast<size_t>(s.most_shards), s.plans);
  if (shards.size() != s.shards.size() || shards[0].size != s.shards[0].size ||
      shards.back().size != s.shards.back().size) {
    s.prepare(shards);
  }
  s.shards = shards;
  if (s.books) {
    for (const ShardRange& shard : shards) ++s.books->shards[shard.size];
  }
  Bookkeeper(s.kept(), 0)(&StepAccounts::plans);
  s.sum->begin(static_cast<int64_t>(shards.size()), s.dealt);
  s.check = check_due(iteration, s.check_frequency, s.dealt);
  const int64_t again = s.check ? s.check->times(s.group->rank()) : 0;
  const auto begun = std::chrono::steady_clock::now();
  s.for_each(iteration, s.own.count + again,
             [&](int64_t i, int thread, const ArithmeticMode& mode) {
               const int64_t j = s.shard_of(i);
               if (s.watch) s.watch(thread, j);
               s.compute_shard(static_cast<size_t>(j), thread, batch, iteration, mode,
                               std::max<int64_t>(i - s.own.count + 1, 0));
               if (s.watch) s.watch(thread, -1);
             });
  if (s.own.count > 0) {
    const std::chrono::duration<double> taken =
        *std::max_element(s.ended.begin(), s.ended.end()) - begun;
    const int64_t busy = std::min<int64_t>(s.own.count, s.pool.size());
    s.shard_seconds = taken.count() * static_cast<double>(busy) / static_cast<double>(s.own.count);
  }
  Bookkeeper(s.kept(), 0)(&StepAccounts::waiting);
  fail_point("exchange", iteration);
  s.sum->finish(TimeLimit(s.limit));
  if (s.check) s.compare_results(iteration);
  StepResult result;
  for (size_t j = 0; j < shards.size(); ++j) {
    s.losses[j] = s.words(j).loss;
    result.correct += s.words(j).correct;
  }
  result.loss_sum = tree_sum(s.losses);
  return result;
}

void ShardedStep::apply(const UpdateScalars& scalars) {
  State& s = *state_;
  fail_point("update", scalars.iteration);
  const double observations = scalars.observations * s.loss_scale;
  std::vector<double> divisors;
  if (s.threshold.wanted()) divisors = s.cut_gradients(observations);
  s.pool.for_each(static_cast<int64_t>(s.gradients->size()), [&](int64_t i, int thread) {
    const ArithmeticMode mode;
    Bookkeeper book(s.kept(), thread);
    book(&StepAccounts::waiting);
    const size_t p = s.gradients->by_size()[static_cast<size_t>(i)];
    UpdateScalars own = scalars;
    if (!divisors.empty()) {
      own.observations = divisors[p];
    } else {
      own.observations = observations;
      s.gradients->convert(p);
      book(&StepAccounts::layouts);
    }
    s.solver.update(p, s.gradients->values(p), own);
    book(&StepAccounts::solver);
    s.network.packed().pack(static_cast<int>(p));
    book(&StepAccounts::packing);
    // While the values are in the cache.
    s.learnable_digests[p] = learnable_digest(s.network, s.solver, p);
    mode.check();
    book(&StepAccounts::digests);
  });
  const ArithmeticMode mode;
  const Bookkeeper book(s.kept(), 0);
  book(&StepAccounts::waiting);
  s.update_statistics();
  book(&StepAccounts::statistics);
}

Digest ShardedStep::digest(int64_t iteration) {
  return state_digest(state_->network, state_->learnable_digests, iteration);
}

void ShardedStep::time_passes() {
  State& s = *state_;
  if (!s.books) return;
  PassFloors floors;
  for (auto& [size, runs] : s.runs) {
    std::vector<PlanRun*> all;
    for (PlanRun& run : runs) all.push_back(&run);
    floors.add(s.books->passes.at(size), static_cast<double>(s.books->shards[size]),
               lockstep::time_passes(s.pool, *s.plans.plan(size), all, {s.seed, 1, 0}));
  }
  floors.set(s.books->ledger);
}

const std::vector<int64_t>& ShardedStep::shards_by_worker() const {
  return state_->shards_by_thread;
}

}  // namespace lockstep
