#include "lockstep/train/loop/population_statistics.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/ops/networks/steps.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/views.h"
#include "lockstep/engine/plan/runs_in_turn.h"
#include "lockstep/parallel/reduce/merge_tree.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/programs/shard_plans.h"

namespace lockstep {
namespace {

// A batch normalization layer with all its nodes in the graph.
struct Normalization {
  int mean_state = 0, variance_state = 0;
  std::vector<size_t> nodes;
  std::set<int> before;  // mean_state of the layers that its inputs depend on
};

std::vector<Normalization> normalizations_of(const Graph& graph) {
  std::vector<Normalization> all;
  std::vector<std::set<int>> before(graph.values().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Graph::Node& node = graph.nodes()[i];
    std::set<int> seen;
    for (int v : node.inputs) {
      const auto& more = before[static_cast<size_t>(v)];
      seen.insert(more.begin(), more.end());
    }
    if (node.op->type() == "batch_normalization") {
      const auto slot = [&](size_t input) {
        return graph.values()[static_cast<size_t>(node.inputs.at(input))].slot;
      };
      const int mean = slot(3);
      auto found = std::find_if(all.begin(), all.end(),
                                [&](const Normalization& n) { return n.mean_state == mean; });
      if (found == all.end()) found = all.insert(all.end(), {mean, slot(4), {}, {}});
      found->nodes.push_back(i);
      found->before.insert(seen.begin(), seen.end());
      seen.insert(mean);
    }
    for (int v : node.outputs) before[static_cast<size_t>(v)] = seen;
  }
  return all;
}

std::vector<Normalization> normalizations_of(const Network& network) {
  std::vector<Normalization> all = normalizations_of(network.lower(1, {.training = false}).graph);
  // Layers whose statistics training does not change keep them.
  std::set<int> followed;
  for (const MovingStatistics& s : network.lower(1, {.training = true}).statistics) {
    followed.insert(s.mean_state);
  }
  const auto kept = [&](int mean_state) { return !followed.contains(mean_state); };
  std::erase_if(all, [&](const Normalization& n) { return kept(n.mean_state); });
  for (Normalization& n : all) std::erase_if(n.before, kept);
  return all;
}

// Groups the layers into passes, in an order in which their statistics can be computed.
std::vector<std::vector<Normalization>> in_passes(std::vector<Normalization> all,
                                                  const Network& network) {
  std::vector<std::vector<Normalization>> passes;
  std::set<int> done;
  while (!all.empty()) {
    std::vector<Normalization> ready, later;
    for (Normalization& n : all) {
      const bool now = std::includes(done.begin(), done.end(), n.before.begin(), n.before.end());
      (now ? ready : later).push_back(std::move(n));
    }
    if (ready.empty()) {
      const std::string& name = network.state()[static_cast<size_t>(later[0].mean_state)].name;
      throw InvalidArgument("[training] population statistics: the inputs of the shared layer `" +
                                name.substr(0, name.rfind('.')) + "` depend on its own statistics",
                            "use batch_normalization_statistics = \"moving\"");
    }
    for (const Normalization& n : ready) done.insert(n.mean_state);
    passes.push_back(std::move(ready));
    all = std::move(later);
  }
  return passes;
}

// Outputs of a part of a graph: statistics of the input of a node, and the number of values of a
// channel, which of sequences is an output, too.
struct NodeStatistics {
  int mean = -1, variance = -1, count = -1;
  int64_t values = 0;  // if `count` is -1
};

// The part of a network that the layers of a pass depend on, with the statistics of each node of
// these layers, in order.
struct Part {
  Graph graph;
  std::vector<NodeStatistics> nodes;
};

// Adds the statistics of node `i` of the network to the part, in which its values have the numbers
// `moved`.
NodeStatistics add_statistics(const LoweredNetwork& lowered, size_t i,
                              const std::vector<int>& moved, Graph& part) {
  const Graph::Node& node = lowered.graph.nodes()[i];
  GraphBuilder builder(part, node.name + ": statistics");
  const auto value = [&](int number) {
    return Value(&builder, moved[static_cast<size_t>(number)]);
  };
  const Value x = value(node.inputs[0]);
  NodeStatistics made;
  if (const auto steps = lowered.normalized_steps.find(i);
      steps != lowered.normalized_steps.end()) {
    const Value lengths = value(steps->second);
    const auto own = ops::statistics_of_steps(
        ops::reshaped(x, steps_apart(x.shape(), lengths.shape()[0])), lengths);
    made.count = part.mark_output(own.count.number());
    made.mean = part.mark_output(own.mean.number());
    made.variance = part.mark_output(own.variance.number());
    return made;
  }
  // The statistics do not depend on epsilon.
  const auto own =
      ops::batch_normalization_training(x, value(node.inputs[1]), value(node.inputs[2]));
  made.mean = part.mark_output(own.mean.number());
  made.variance = part.mark_output(own.variance.number());
  made.values = x.shape().elements() / x.shape()[1];
  return made;
}

Part up_to(const LoweredNetwork& lowered, const std::vector<Normalization>& pass) {
  const Graph& graph = lowered.graph;
  std::vector<size_t> wanted;
  for (const Normalization& n : pass) wanted.insert(wanted.end(), n.nodes.begin(), n.nodes.end());
  std::vector<bool> needed(graph.values().size(), false);
  for (size_t node : wanted) {
    for (size_t i = 0; i < 3; ++i) {
      needed[static_cast<size_t>(graph.nodes()[node].inputs[i])] = true;
    }
    const auto steps = lowered.normalized_steps.find(node);
    if (steps != lowered.normalized_steps.end()) needed[static_cast<size_t>(steps->second)] = true;
  }
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Graph::Node& node = graph.nodes()[i];
    bool any = false;
    for (int v : node.outputs) any |= needed[static_cast<size_t>(v)];
    for (int v : node.inputs) {
      if (any) needed[static_cast<size_t>(v)] = true;
    }
  }
  Part made;
  Graph& part = made.graph;
  std::vector<int> moved(graph.values().size(), -1);
  for (size_t v = 0; v < graph.values().size(); ++v) {
    const Graph::Value& value = graph.values()[v];
    // Includes all inputs, so that they keep their indices.
    if (value.source == Graph::Source::input) moved[v] = part.add_input(value.shape, value.dtype);
    if (!needed[v]) continue;
    if (value.source == Graph::Source::parameter) {
      moved[v] = part.add_parameter(value.slot, value.shape);
    } else if (value.source == Graph::Source::state) {
      moved[v] = part.add_state(value.slot, value.shape);
    }
  }
  const auto moved_values = [&](const std::vector<int>& values) {
    std::vector<int> there;
    for (const int v : values) there.push_back(moved[static_cast<size_t>(v)]);
    return there;
  };
  for (const Graph::Node& node : graph.nodes()) {
    bool any = false;
    for (int v : node.outputs) any |= needed[static_cast<size_t>(v)];
    if (!any) continue;
    const auto outputs = part.add(node.op, moved_values(node.inputs), node.name);
    for (size_t k = 0; k < outputs.size(); ++k) {
      moved[static_cast<size_t>(node.outputs[k])] = outputs[k];
    }
  }
  for (size_t i : wanted) made.nodes.push_back(add_statistics(lowered, i, moved, part));
  return made;
}

// Moments of the elements of channels.
struct Moments {
  double count = 0;                  // for each channel
  std::vector<double> sum, squares;  // `squares`: of deviations from the mean

  void merge(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const double all = count + other.count;
    for (size_t c = 0; c < sum.size(); ++c) {
      const double distance = sum[c] / count - other.sum[c] / other.count;
      squares[c] += other.squares[c] + distance * distance * (count * other.count / all);
      sum[c] += other.sum[c];
    }
    count = all;
  }
};

// Thrown to end a pass early.
struct Stopped {};

// Computes the statistics of the layers of one pass.
class Pass {
 public:
  Pass(Network& network, const ExampleCache& images, ThreadPool& pool,
       const PopulationOptions& options, const std::vector<Normalization>& layers)
      : network_(network),
        images_(images),
        pool_(pool),
        options_(options),
        layers_(layers),
        shards_(cut_into_shards(images.size(), options.shard_size)),
        tree_(static_cast<int64_t>(shards_.size()),
              [](std::vector<Moments>& left, std::vector<Moments>& right) {
                for (size_t i = 0; i < left.size(); ++i) left[i].merge(right[i]);
              }) {
    const bool on_cpu = network.device() == Device{};
    const auto workers =
        on_cpu ? std::min<size_t>(static_cast<size_t>(pool.size()), shards_.size()) : 1;
    for (const IndexRange& shard : shards_) {
      const ShardShape shape = shape_of(shard);
      if (plans_.contains(shape)) continue;
      Part part = up_to(
          network.lower(shape.rows,
                        {.training = false, .inputs = images.input_types(), .steps = shape.steps}),
          layers);
      plans_[shape] = {std::make_shared<const Plan>(part.graph, network.parameter_shapes(),
                                                    PlanOptions{}, network.device()),
                       std::move(part.nodes)};
    }
    make_runs(network, on_cpu ? workers : 0);
    scratch_.resize(workers);
    values_.resize(workers);
  }

  std::vector<Moments> compute() {
    const auto body = [&](int64_t j, int thread, const ArithmeticMode& mode) {
      // stop() may only be called in the calling thread.
      if (thread == 0 && options_.stop && options_.stop()) throw Stopped();
      tree_.add(j, moments(shards_[static_cast<size_t>(j)], static_cast<size_t>(thread)));
      mode.check();
    };
    for_each_shard(pool_, static_cast<int64_t>(shards_.size()), body,
                   static_cast<int>(values_.size()));
    return tree_.take();
  }

 private:
  struct PartPlan {
    std::shared_ptr<const Plan> plan;
    std::vector<NodeStatistics> nodes;
  };

  // On the CPU one after the other in the memory of each worker (0: on a device).
  void make_runs(Network& network, size_t workers) {
    for (size_t t = 0; t < workers; ++t) {
      runs_.emplace_back(network.packed(), network.state_pointers());
      for (const auto& [shape, of] : plans_) runs_.back().add(of.plan);
    }
    if (workers > 0) return;
    for (const auto& [shape, of] : plans_) {
      runs_of_device_.emplace(shape, PlanRun(of.plan, network.packed(), network.state_pointers()));
    }
  }

  // Sequences have room for the longest of the shard.
  ShardShape shape_of(const IndexRange& shard) const {
    ShardShape shape{shard.count};
    const std::vector<CachedValue>& inputs = images_.inputs();
    if (std::ranges::none_of(inputs, &CachedValue::sequence)) return shape;
    for (size_t k = 0; k < inputs.size(); ++k) {
      int64_t longest = 0;
      for (int64_t i = shard.first; inputs[k].sequence && i < shard.end(); ++i) {
        longest = std::max(longest, images_.steps(i, k));
      }
      shape.steps.push_back(inputs[k].sequence ? steps_capacity(longest) : 0);
    }
    return shape;
  }

  PlanRun& run_of(const ShardShape& shape, size_t worker) {
    if (runs_.empty()) return runs_of_device_.at(shape);
    return runs_[worker].of(*plans_.at(shape).plan);
  }

  // Copies input k of an example to row i.
  void copy_row(size_t k, const IndexRange& shard, int64_t i, const uint8_t* example,
                const ShardShape& shape, std::vector<std::vector<uint8_t>>& values) const {
    const CachedValue& input = images_.inputs()[k];
    const size_t room = input.sequence ? static_cast<size_t>(shape.steps[k]) : 1;
    const size_t bytes = room * input.bytes;
    values[k].resize(static_cast<size_t>(shard.count) * bytes);
    uint8_t* const row = values[k].data() + static_cast<size_t>(i) * bytes;
    if (!input.sequence) {
      std::memcpy(row, example + input.offset, bytes);
      if (input.kind == ValueKind::array) return;
      add_noise(options_.noise, options_.seed, fixed_noise_epoch, shard.first + i, row,
                static_cast<int64_t>(bytes), static_cast<int64_t>(k));
      return;
    }
    const ExampleCache::Steps steps = images_.steps_in(input, example);
    copy_steps(steps, input.bytes, shape.steps[k], row);
    std::vector<uint8_t>& lengths = values[images_.inputs().size() + input.number];
    const auto count = static_cast<int32_t>(steps.count);
    lengths.resize(static_cast<size_t>(shard.count) * sizeof count);
    std::memcpy(lengths.data() + static_cast<size_t>(i) * sizeof count, &count, sizeof count);
  }

  void set_inputs(PlanRun& run, const IndexRange& shard, const ShardShape& shape, size_t worker) {
    std::vector<std::vector<uint8_t>>& values = values_[worker];
    const std::vector<CachedValue>& inputs = images_.inputs();
    const auto sequences = std::ranges::count_if(inputs, &CachedValue::sequence);
    values.resize(inputs.size() + static_cast<size_t>(sequences));
    for (int64_t i = 0; i < shard.count; ++i) {
      const uint8_t* const example = images_.get(shard.first + i, scratch_[worker]);
      for (size_t k = 0; k < inputs.size(); ++k) copy_row(k, shard, i, example, shape, values);
    }
    for (size_t k = 0; k < values.size(); ++k) {
      run.set_input(static_cast<int>(k), values[k].data(), values[k].size());
    }
  }

  // Of the input of a node.
  static Moments moments(const PlanRun& run, const NodeStatistics& node, size_t channels) {
    std::vector<float> mean(channels), variance(channels);
    float counted = 0;
    if (node.count >= 0) run.get_output(node.count, &counted, sizeof counted);
    run.get_output(node.mean, mean.data(), channels * sizeof(float));
    run.get_output(node.variance, variance.data(), channels * sizeof(float));
    run.synchronize();
    Moments m;
    m.count = node.count >= 0 ? static_cast<double>(counted) : static_cast<double>(node.values);
    for (size_t c = 0; c < channels; ++c) {
      m.sum.push_back(m.count * static_cast<double>(mean[c]));
      m.squares.push_back(m.count * static_cast<double>(variance[c]));
    }
    return m;
  }

  std::vector<Moments> moments(const IndexRange& shard, size_t worker) {
    const ShardShape shape = shape_of(shard);
    const PartPlan& of = plans_.at(shape);
    PlanRun& run = run_of(shape, worker);
    set_inputs(run, shard, shape, worker);
    run.forward({});
    std::vector<Moments> all;
    size_t node = 0;
    for (const Normalization& layer : layers_) {
      const Tensor& state = network_.state()[static_cast<size_t>(layer.mean_state)].value;
      const auto channels = static_cast<size_t>(state.shape().elements());
      std::optional<Moments> together;
      for (size_t k = 0; k < layer.nodes.size(); ++k, ++node) {
        Moments m = moments(run, of.nodes[node], channels);
        if (together) {
          together->merge(m);
        } else {
          together = std::move(m);
        }
      }
      all.push_back(std::move(*together));
    }
    return all;
  }

  Network& network_;
  const ExampleCache& images_;
  ThreadPool& pool_;
  const PopulationOptions& options_;
  const std::vector<Normalization>& layers_;
  const std::vector<IndexRange> shards_;
  std::map<ShardShape, PartPlan> plans_;
  std::vector<RunsInTurn> runs_;  // on the CPU, by worker
  std::map<ShardShape, PlanRun> runs_of_device_;
  std::vector<std::vector<uint8_t>> scratch_;
  std::vector<std::vector<std::vector<uint8_t>>> values_;  // by worker and input
  MergeTree<std::vector<Moments>> tree_;
};

void set_state(const Network& network, int k, const std::vector<double>& sums, double count) {
  const Tensor& state = network.state()[static_cast<size_t>(k)].value;
  std::vector<float> values;
  for (double sum : sums) values.push_back(static_cast<float>(sum / count));
  state.copy_from(Tensor::from(std::span<const float>(values), state.shape()));
}

}  // namespace

void check_population_statistics(const Network& network) {
  in_passes(normalizations_of(network), network);
}

PopulationResult set_population_statistics(Network& network, const ExampleCache& images,
                                           ThreadPool& pool, const PopulationOptions& options) {
  const ArithmeticMode mode;
  PopulationResult result;
  const auto all = normalizations_of(network);
  const auto passes = in_passes(all, network);
  result.layers = static_cast<int64_t>(all.size());
  result.passes = static_cast<int64_t>(passes.size());
  std::vector<Tensor> before;
  for (const auto& state : network.state()) before.push_back(state.value.clone());
  const auto restore = [&] {
    for (size_t k = 0; k < before.size(); ++k) network.state()[k].value.copy_from(before[k]);
  };
  try {
    network.packed().pack_all();
    for (size_t p = 0; p < passes.size(); ++p) {
      if (options.on_pass) options.on_pass(static_cast<int64_t>(p), result.passes);
      const auto moments = Pass(network, images, pool, options, passes[p]).compute();
      for (size_t i = 0; i < moments.size(); ++i) {
        if (moments[i].count == 0) continue;  // no sequence has a step
        set_state(network, passes[p][i].mean_state, moments[i].sum, moments[i].count);
        set_state(network, passes[p][i].variance_state, moments[i].squares, moments[i].count);
      }
    }
  } catch (const Stopped&) {
    restore();
    result.complete = false;
  } catch (...) {
    restore();
    throw;
  }
  return result;
}

}  // namespace lockstep
