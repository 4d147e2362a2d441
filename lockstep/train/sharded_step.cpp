#include "lockstep/train/sharded_step.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/train/state_digest.h"
#include "lockstep/train/targets.h"
#include "lockstep/train/tree.h"

namespace lockstep {

std::vector<ShardRange> cut_into_shards(int64_t n, int64_t shard_size) {
  if (n < 1 || shard_size < 1) throw InvalidArgument("[training] an empty mini-batch or shard");
  const int64_t count = (n + shard_size - 1) / shard_size;
  std::vector<ShardRange> shards;
  int64_t first = 0;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t size = n / count + (j < n % count ? 1 : 0);
    shards.push_back({first, size});
    first += size;
  }
  return shards;
}

namespace {

// The network and its loss, compiled for shards of one size.
struct ShardPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<PlanRun> runs;  // by thread
};

constexpr int kScores = 0, kLosses = 1, kFirstStatistic = 2;  // outputs of the graph

// Row-major copy of one learnable's gradient sum, and the conversion that fills it.
struct GradientCopy {
  Memory memory, scratch;
  kernels::BoundPass convert;  // empty where the sum is row-major already
  const float* values = nullptr;
};

int64_t count_correct(const float* scores, const int32_t* labels, int64_t rows, int64_t classes) {
  int64_t correct = 0;
  for (int64_t n = 0; n < rows; ++n) {
    const float* row = scores + n * classes;
    correct += std::max_element(row, row + classes) - row == labels[n];
  }
  return correct;
}

}  // namespace

struct ShardedStep::State {
  State(Network& n, Solver& v, ThreadPool& p, int64_t size, uint64_t key)
      : network(n), solver(v), pool(p), shard_size(size), seed(key) {}

  Network& network;
  Solver& solver;
  ThreadPool& pool;
  int64_t shard_size;
  uint64_t seed;
  int64_t most_shards = 0;  // of a full mini-batch; threads beyond have nothing to do
  bool labelled = true;     // labels are learned, else images
  int64_t outputs = 0;      // of an observation: classes, or elements of an image

  std::map<int64_t, ShardPlan> plans;  // by size
  GradientLayout layout;
  std::vector<MovingStatistics> statistics;
  std::vector<int64_t> statistic_channels;
  std::unique_ptr<TreeReduction> tree;
  std::vector<GradientCopy> gradients;  // by learnable
  std::vector<size_t> by_size;          // learnables, the largest first
  std::vector<Digest> learnable_digests;

  // Of the mini-batch at hand, by shard.
  std::vector<ShardRange> shards;
  std::vector<double> losses;
  std::vector<int64_t> correct;
  std::vector<std::vector<float>> shard_statistics;  // all channels of all statistics
  std::vector<int64_t> shards_by_thread;
  std::atomic<int64_t> next{0};

  ShardPlan& plan_for(int64_t size);
  void prepare(const std::vector<ShardRange>& ranges);
  void compute_shard(size_t j, int thread, const MiniBatch& batch, int64_t iteration,
                     const ArithmeticMode& mode);
  void make_gradient_copies();
  void update_statistics();
};

ShardPlan& ShardedStep::State::plan_for(int64_t size) {
  auto found = plans.find(size);
  if (found != plans.end()) return found->second;
  LoweredNetwork lowered = network.lower(size, {.training = true, .pixels = true});
  if (lowered.inputs.size() != 1 || lowered.outputs.size() != 1) {
    throw InvalidArgument(
        "[training] networks with one input and one output are trained, this has " +
            std::to_string(lowered.inputs.size()) + " and " +
            std::to_string(lowered.outputs.size()),
        "train others with a loop of your own");
  }
  const int scores = lowered.outputs[0];
  const LossValues loss = add_loss(lowered.graph, network.loss(), scores);
  lowered.graph.mark_output(scores);
  PlanOptions options;
  options.gradients = true;
  options.seeds = {lowered.graph.mark_output(loss.loss)};
  if (!layout.entries.empty()) options.gradient_layout = &layout;
  statistics.clear();
  statistic_channels.clear();
  for (MovingStatistics s : lowered.statistics) {
    statistic_channels.push_back(lowered.graph.shape(s.mean_output).elements());
    s.mean_output = lowered.graph.mark_output(s.mean_output);
    s.variance_output = lowered.graph.mark_output(s.variance_output);
    statistics.push_back(s);
  }
  labelled = network.loss() == "cross_entropy";
  outputs = lowered.graph.shape(scores).elements() / size;

  ShardPlan made;
  made.plan = std::make_shared<Plan>(lowered.graph, network.learnable_shapes(), options);
  if (layout.entries.empty()) layout = made.plan->gradient_layout();
  for (int64_t t = 0; t < std::min<int64_t>(pool.size(), most_shards); ++t) {
    made.runs.emplace_back(made.plan, network.packed(), network.state_pointers());
    // The loss of a mini-batch is a sum until the one division at the root.
    std::fill_n(made.runs.back().seed(kLosses), size, 1.0f);
  }
  return plans.emplace(size, std::move(made)).first->second;
}

void ShardedStep::State::prepare(const std::vector<ShardRange>& ranges) {
  shards = ranges;
  for (const auto& range : shards) plan_for(range.size);
  losses.assign(shards.size(), 0);
  correct.assign(shards.size(), 0);
  int64_t channels = 0;
  for (int64_t c : statistic_channels) channels += 2 * c;
  shard_statistics.resize(shards.size());
  for (auto& values : shard_statistics) values.resize(static_cast<size_t>(channels));
}

void ShardedStep::State::make_gradient_copies() {
  const auto& table = kernels::table_for({});
  for (size_t p = 0; p < layout.entries.size(); ++p) {
    const auto& entry = layout.entries[p];
    const auto* sum = reinterpret_cast<const std::byte*>(tree->result()) + entry.offset;
    GradientCopy copy;
    if (entry.spec.row_major()) {
      copy.values = reinterpret_cast<const float*>(sum);
    } else {
      copy.memory = allocate_zeros(entry.spec.plain().bytes());
      const auto pass = table.reorder(entry.spec, entry.spec.plain());
      copy.scratch = allocate(pass.scratch_bytes);
      void* const from = const_cast<std::byte*>(sum);
      void* const to = copy.memory.data();
      copy.convert = pass.bind(
          {std::span<void* const>(&from, 1), std::span<void* const>(&to, 1), copy.scratch.data()});
      copy.values = copy.memory.as<float>();
    }
    gradients.push_back(std::move(copy));
    by_size.push_back(p);
  }
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) {
    return layout.entries[a].spec.bytes() > layout.entries[b].spec.bytes();
  });
}

void ShardedStep::State::compute_shard(size_t j, int thread, const MiniBatch& batch,
                                       int64_t iteration, const ArithmeticMode& mode) {
  const ShardRange range = shards[j];
  PlanRun& run = plans.at(range.size).runs[static_cast<size_t>(thread)];
  const auto rows = static_cast<size_t>(range.size), first = static_cast<size_t>(range.first);
  const size_t row_bytes = batch.pixels.size() / batch.labels.size();
  std::memcpy(run.input(0), batch.pixels.data() + first * row_bytes, rows * row_bytes);
  if (labelled) {
    std::memcpy(run.input(1), batch.labels.data() + first, rows * sizeof(int32_t));
  } else {
    const auto count = static_cast<size_t>(outputs);
    pixels_to_targets(batch.targets.data() + first * count, rows * count,
                      static_cast<float*>(run.input(1)));
  }

  const kernels::StepInfo step{seed, static_cast<uint64_t>(iteration), range.first};
  run.forward(step);
  const float* loss = run.output(kLosses);
  double sum = 0;
  for (size_t i = 0; i < rows; ++i) sum += static_cast<double>(loss[i]);
  losses[j] = sum;
  if (labelled) {
    correct[j] =
        count_correct(run.output(kScores), batch.labels.data() + first, range.size, outputs);
  }
  size_t at = 0;
  for (size_t k = 0; k < statistics.size(); ++k) {
    const auto channels = static_cast<size_t>(statistic_channels[k]);
    std::copy_n(run.output(statistics[k].mean_output), channels, &shard_statistics[j][at]);
    at += channels;
    std::copy_n(run.output(statistics[k].variance_output), channels, &shard_statistics[j][at]);
    at += channels;
  }
  run.backward(step);
  mode.check();
  tree->add(static_cast<int64_t>(j), reinterpret_cast<const float*>(run.gradients()));
  ++shards_by_thread[static_cast<size_t>(thread)];
}

// mean = sum w_j mean_j; variance = sum w_j (variance_j + (mean_j - mean)^2), by the tree.
void ShardedStep::State::update_statistics() {
  int64_t rows = 0;
  for (const auto& s : shards) rows += s.size;
  std::vector<double> shares, terms(shards.size());
  for (const auto& s : shards) {
    shares.push_back(static_cast<double>(s.size) / static_cast<double>(rows));
  }
  size_t at = 0;
  std::vector<double> mean, variance;
  for (size_t k = 0; k < statistics.size(); ++k) {
    const auto channels = static_cast<size_t>(statistic_channels[k]);
    mean.resize(channels);
    variance.resize(channels);
    for (size_t c = 0; c < channels; ++c) {
      for (size_t j = 0; j < shards.size(); ++j) {
        terms[j] = shares[j] * static_cast<double>(shard_statistics[j][at + c]);
      }
      mean[c] = tree_sum(terms);
      for (size_t j = 0; j < shards.size(); ++j) {
        const double distance = static_cast<double>(shard_statistics[j][at + c]) - mean[c];
        terms[j] = shares[j] * (static_cast<double>(shard_statistics[j][at + channels + c]) +
                                distance * distance);
      }
      variance[c] = tree_sum(terms);
    }
    at += 2 * channels;
    const auto& s = statistics[k];
    const auto count = static_cast<int64_t>(channels);
    const auto& states = network.state();
    Tensor mean_state = states[static_cast<size_t>(s.mean_state)].value;
    Tensor variance_state = states[static_cast<size_t>(s.variance_state)].value;
    update_moving(mean_state.data<float>(), mean.data(), count, s.momentum);
    update_moving(variance_state.data<float>(), variance.data(), count, s.momentum);
  }
}

ShardedStep::ShardedStep(Network& network, Solver& solver, ThreadPool& pool,
                         const TrainingOptions& options)
    : state_(std::make_unique<State>(network, solver, pool, options.shard_size,
                                     static_cast<uint64_t>(options.seed))) {
  State& s = *state_;
  const auto shards = cut_into_shards(options.mini_batch_size, options.shard_size);
  s.most_shards = static_cast<int64_t>(shards.size());
  s.prepare(shards);
  s.tree = std::make_unique<TreeReduction>(
      s.layout.bytes / sizeof(float),
      options.deterministic ? TreeReduction::Order::tree : TreeReduction::Order::of_arrival);
  s.shards_by_thread.assign(static_cast<size_t>(pool.size()), 0);
  s.learnable_digests.resize(network.learnables().size());
  s.make_gradient_copies();
  // Copies made for earlier uses of the network may be older than its values.
  network.packed().pack_all();
}

ShardedStep::~ShardedStep() = default;

StepResult ShardedStep::compute(const MiniBatch& batch, int64_t iteration) {
  State& s = *state_;
  const auto shards = cut_into_shards(batch.size(), s.shard_size);
  if (static_cast<int64_t>(shards.size()) > s.most_shards) {
    throw InvalidArgument("[training] a mini-batch of " + std::to_string(batch.size()) +
                          " observations is larger than the step was made for");
  }
  if (!s.labelled && batch.targets.size() != batch.labels.size() * static_cast<size_t>(s.outputs)) {
    throw InvalidArgument("[training] the network gives " + std::to_string(s.outputs) +
                          " elements for an observation, the mini-batch's targets have " +
                          std::to_string(batch.targets.size() / batch.labels.size()));
  }
  if (shards.size() != s.shards.size() || shards[0].size != s.shards[0].size ||
      shards.back().size != s.shards.back().size) {
    s.prepare(shards);
  }
  s.shards = shards;
  s.tree->begin(static_cast<int64_t>(shards.size()));
  // One shard for every thread, the rest for whoever is free.
  s.next = s.pool.size();
  s.pool.run([&](int thread) {
    const ArithmeticMode mode;
    const auto count = static_cast<int64_t>(s.shards.size());
    for (int64_t j = thread; j < count; j = s.next++) {
      try {
        s.compute_shard(static_cast<size_t>(j), thread, batch, iteration, mode);
      } catch (...) {
        s.next = count;  // the others stop after the shard they are at
        throw;
      }
    }
  });
  StepResult result;
  result.loss_sum = tree_sum(s.losses);
  for (int64_t c : s.correct) result.correct += c;
  return result;
}

void ShardedStep::apply(const UpdateScalars& scalars) {
  State& s = *state_;
  s.pool.for_each(static_cast<int64_t>(s.by_size.size()), [&](int64_t i, int) {
    const ArithmeticMode mode;
    const size_t p = s.by_size[static_cast<size_t>(i)];
    if (s.gradients[p].convert) s.gradients[p].convert({});
    s.solver.update(p, s.gradients[p].values, scalars);
    s.network.packed().pack(static_cast<int>(p));
    // While the values are in the cache.
    s.learnable_digests[p] = learnable_digest(s.network, s.solver, p);
    mode.check();
  });
  const ArithmeticMode mode;
  s.update_statistics();
}

Digest ShardedStep::digest(int64_t iteration) const {
  return state_digest(state_->network, state_->learnable_digests, iteration);
}

const std::vector<int64_t>& ShardedStep::shards_by_thread() const {
  return state_->shards_by_thread;
}

}  // namespace lockstep
