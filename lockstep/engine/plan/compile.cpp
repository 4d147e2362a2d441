#include "lockstep/engine/plan/compile.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/graph/differentiate.h"
#include "lockstep/engine/graph/kernel_gradient.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/plan/derivatives.h"
#include "lockstep/engine/plan/expressions.h"

namespace lockstep {
namespace {

using kernels::Operand;
using kernels::Pass;
using Kind = Operand::Kind;
using Storage = PlanBuffer::Storage;

constexpr int kBeforeAll = -1;
constexpr int kAfterAll = std::numeric_limits<int>::max() - 1;

// Whether two specs describe the same bytes. Row-major memory fits any shape with as many elements.
bool same_memory(const TensorSpec& a, const TensorSpec& b) {
  if (a == b) return true;
  return a.row_major() && b.row_major() && a.dtype == b.dtype &&
         a.shape.elements() == b.shape.elements();
}

class Compiler {
 public:
  Compiler(const DifferentiatedGraph& graph, const std::vector<Shape>& parameters,
           const PlanOptions& options, Device device, Plan::State& out)
      : graph_(graph.graph),
        derivatives_(graph),
        parameters_(parameters),
        options_(options),
        table_(kernels::table_for(device)),
        out_(out),
        layouts_(graph_.values().size()),
        placed_(graph_.values().size(), -1) {}

  void compile() {
    kernels::check_precision(table_, options_.precision);
    place_inputs();
    for (size_t i = 0; i < derivatives_.forward_nodes; ++i) add_node(graph_.nodes()[i]);
    for (int value : graph_.outputs()) {
      const int buffer = in_layout(value, spec_of(value).plain(), "output");
      touch(buffer, kAfterAll);
      out_.outputs.push_back(buffer);
    }
    out_.forward_steps = static_cast<int>(out_.steps.size());
    if (options_.gradients) {
      backward();
      out_.shards_together = sums_over_shards_possible(derivatives_, kernels_, parameters_.size());
    }
    if (options_.sums_over_shards) {
      if (!out_.shards_together) throw InternalError("[plan] gradients have no sums over shards");
      out_.gradient_layout.bytes = out_.gradient_layout.summed_bytes = 0;
    }
    mark_backward_results(out_);
    if (options_.unchanging != nullptr) out_.kept = kept_part_of(out_, *options_.unchanging);
    for (const auto& step : out_.steps) {
      out_.scratch_bytes = std::max(out_.scratch_bytes, step.pass.scratch_bytes);
    }
    write_in_place(out_.buffers, out_.steps);
    out_.arena_bytes = place_buffers(out_.buffers);
  }

 private:
  const Graph::Value& value_of(int v) const { return graph_.values()[static_cast<size_t>(v)]; }
  TensorSpec spec_of(int v) const { return {value_of(v).shape, value_of(v).dtype, nullptr}; }

  int add_buffer(const TensorSpec& spec, Storage storage = Storage::arena, int slot = 0) {
    PlanBuffer buffer;
    buffer.storage = storage;
    buffer.spec = spec;
    buffer.slot = slot;
    out_.buffers.push_back(buffer);
    return static_cast<int>(out_.buffers.size()) - 1;
  }

  void touch(int buffer, int step) {
    auto& b = out_.buffers[static_cast<size_t>(buffer)];
    b.first = std::min(b.first, step);
    b.last = std::max(b.last, step);
  }

  TensorSpec buffer_spec(int buffer) const {
    return out_.buffers[static_cast<size_t>(buffer)].spec;
  }

  void add_step(Pass pass, std::vector<int> reads, std::vector<int> writes, std::string name,
                bool conversion = false) {
    const int at = static_cast<int>(out_.steps.size());
    for (int b : reads) touch(b, at);
    for (int b : writes) touch(b, at);
    out_.steps.push_back({.pass = std::move(pass),
                          .reads = std::move(reads),
                          .writes = std::move(writes),
                          .name = std::move(name),
                          .conversion = conversion});
  }

  void place_inputs() {
    out_.inputs.resize(static_cast<size_t>(graph_.inputs()));
    for (size_t v = 0; v < graph_.values().size(); ++v) {
      const auto& value = graph_.values()[v];
      if (value.source != Graph::Source::input) continue;
      const int buffer = add_buffer({value.shape, value.dtype, nullptr});
      touch(buffer, kBeforeAll);
      layouts_[v] = {buffer};
      out_.inputs[static_cast<size_t>(value.slot)] = buffer;
    }
  }

  // Returns the buffer that holds a value in a layout. Adds a conversion if there is none yet.
  int in_layout(int v, const TensorSpec& wanted, const std::string& name) {
    auto& known = layouts_[static_cast<size_t>(v)];
    for (int b : known) {
      if (same_memory(buffer_spec(b), wanted)) return b;
    }
    const auto& value = value_of(v);
    if (value.source == Graph::Source::parameter) {
      known.push_back(add_buffer(wanted, Storage::parameter, value.slot));
      return known.back();
    }
    if (value.source == Graph::Source::state && known.empty()) {
      known.push_back(add_buffer(spec_of(v), Storage::state, value.slot));
      return in_layout(v, wanted, name);
    }
    known.push_back(converted(known.front(), wanted, name));
    return known.back();
  }

  // Returns a buffer with the elements of `from` in layout `wanted`, which is `from` itself if no
  // conversion is necessary.
  int converted(int from, const TensorSpec& wanted, const std::string& name) {
    const TensorSpec have = buffer_spec(from);
    if (same_memory(have, wanted)) return from;
    if (!(have.shape == wanted.shape)) {
      if (!have.row_major()) return converted(converted(from, have.plain(), name), wanted, name);
      if (have.dtype != wanted.dtype) {
        return converted(converted(from, {have.shape, wanted.dtype, nullptr}, name), wanted, name);
      }
      // Treats the row-major memory as having the wanted shape.
      const int to = add_buffer(wanted);
      add_step(kernels::reorder(table_, wanted.plain(), wanted), {from}, {to}, name + ": layout",
               true);
      return to;
    }
    const int to = add_buffer(wanted);
    add_step(kernels::reorder(table_, have, wanted), {from}, {to}, name + ": layout", true);
    return to;
  }

  kernels::Kernel compiled(const Graph::Node& node, std::span<const TensorSpec> specs) const {
    try {
      return node.op->compile(table_, specs);
    } catch (const Unsupported& e) {
      throw Unsupported("[" + node.name + "] " + e.what(), e.hint());
    }
  }

  // Whether a pass only copies its input and the copy can be left out. That is safe for arena
  // buffers, because no step writes them twice.
  bool needs_no_copy(const Pass& pass, const std::vector<int>& reads) const {
    return pass.copies &&
           out_.buffers[static_cast<size_t>(reads.front())].storage == Storage::arena &&
           same_memory(buffer_spec(reads.front()), pass.writes.front().spec);
  }

  void add_node(const Graph::Node& node) {
    if (const auto* const passes = dynamic_cast<const KernelGradient*>(node.op.get())) {
      add_backward_passes(node, *passes);
    } else if (is_accumulation(*node.op)) {
      add_sum(node);
    } else {
      add_op(node);
      return;
    }
    kernels_.emplace_back();
    workspaces_.push_back(-1);
  }

  void add_op(const Graph::Node& node) {
    std::vector<TensorSpec> specs;
    for (int v : node.inputs) {
      const auto& known = layouts_[static_cast<size_t>(v)];
      TensorSpec spec = spec_of(v);
      const bool narrow = is_narrow(options_.precision) && spec.dtype == DType::f32 &&
                          node.op->takes_narrow(specs.size());
      const DType wanted = narrow ? options_.precision : spec.dtype;
      if (!known.empty() && value_of(v).source == Graph::Source::computed) {
        const TensorSpec have = buffer_spec(known.front());
        if (have.shape == spec.shape && have.dtype == wanted) spec = have;
      }
      if (spec.dtype != wanted) spec = {spec.shape, wanted, nullptr};
      specs.push_back(spec);
    }
    kernels::Kernel kernel = compiled(node, specs);
    std::vector<int> reads, writes;
    for (const auto& o : kernel.forward.reads) {
      reads.push_back(in_layout(node.inputs[static_cast<size_t>(o.index)], o.spec, node.name));
    }
    if (needs_no_copy(kernel.forward, reads) &&
        value_of(node.inputs.front()).source == Graph::Source::computed) {
      layouts_[static_cast<size_t>(node.outputs.front())] = {reads.front()};
      kernels_.push_back(std::move(kernel));
      workspaces_.push_back(-1);
      return;
    }
    int workspace = -1;
    for (const auto& o : kernel.forward.writes) {
      if (o.kind == Kind::workspace) {
        workspace = add_buffer(o.spec);
        writes.push_back(workspace);
      } else {
        writes.push_back(result_buffer(node.outputs[static_cast<size_t>(o.index)], o.spec));
      }
    }
    const bool backward = kernels_.size() >= derivatives_.forward_nodes;
    add_step(kernel.forward, reads, writes, backward ? node.name + ": gradient" : node.name);
    out_.steps.back().draws = node.op->draws_random_numbers();
    kernels_.push_back(std::move(kernel));
    workspaces_.push_back(workspace);
    for (const int v : node.outputs) keep_in_place(v, node.name);
  }

  void backward() {
    gradient_layout();
    out_.output_gradients.assign(graph_.outputs().size(), -1);
    for (const int v : derivatives_.seeds) {
      const int buffer = add_buffer(spec_of(v));
      touch(buffer, kBeforeAll);
      touch(buffer, kAfterAll);
      out_.output_gradients[static_cast<size_t>(value_of(v).slot)] = buffer;
      layouts_[static_cast<size_t>(v)] = {buffer};
    }
    for (size_t i = derivatives_.forward_nodes; i < graph_.nodes().size(); ++i) {
      add_node(graph_.nodes()[i]);
    }
    finish_gradients();
  }

  void gradient_layout() {
    GradientLayout& layout = out_.gradient_layout;
    layout = options_.gradient_layout ? *options_.gradient_layout
                                      : gradient_layout_of(derivatives_, kernels_, parameters_);
    gradient_buffers_.resize(parameters_.size());
    for (size_t p = 0; p < parameters_.size(); ++p) {
      gradient_buffers_[p] =
          add_buffer(layout.entries[p].spec, Storage::gradient, static_cast<int>(p));
    }
    written_.assign(parameters_.size(), false);
    place_gradients();
  }

  // Chooses the values that are computed in the final buffer of a parameter's gradient: the
  // gradient itself, and the sums before it, which no other op reads.
  void place_gradients() {
    std::vector<int> readers(graph_.values().size(), 0);
    for (const auto& node : graph_.nodes()) {
      for (const int v : node.inputs) ++readers[static_cast<size_t>(v)];
    }
    for (const int v : derivatives_.parameter_gradients) {
      if (v >= 0) ++readers[static_cast<size_t>(v)];
    }
    for (size_t p = 0; p < parameters_.size(); ++p) {
      int v = derivatives_.parameter_gradients[p];
      while (v >= 0 && value_of(v).source == Graph::Source::computed &&
             readers[static_cast<size_t>(v)] == 1) {
        placed_[static_cast<size_t>(v)] = static_cast<int>(p);
        const Graph::Node& node = graph_.nodes()[static_cast<size_t>(value_of(v).slot)];
        v = is_accumulation(*node.op) ? node.inputs.front() : -1;
      }
    }
  }

  // The buffer for a result of a step: the final buffer of a gradient, if the value has one and it
  // has this layout.
  int result_buffer(int v, const TensorSpec& spec) {
    const int p = placed_[static_cast<size_t>(v)];
    int buffer = p < 0 ? -1 : gradient_buffers_[static_cast<size_t>(p)];
    if (buffer < 0 || !same_memory(buffer_spec(buffer), spec)) buffer = add_buffer(spec);
    layouts_[static_cast<size_t>(v)] = {buffer};
    return buffer;
  }

  // After the step of a value that has a final buffer: brings it there.
  void keep_in_place(int v, const std::string& name) {
    const int p = placed_[static_cast<size_t>(v)];
    if (p < 0) return;
    const int to = gradient_buffers_[static_cast<size_t>(p)];
    const int buffer = layouts_[static_cast<size_t>(v)].front();
    if (buffer != to) convert_into(buffer, to, name);
    layouts_[static_cast<size_t>(v)] = {to};
    written_[static_cast<size_t>(p)] = true;
  }

  // Leaves a pass to the caller, who sums its results over shards.
  void sum_over_shards(const Graph::Node& node, const Pass& pass, std::vector<int> reads) {
    PlanShardSum sum{node.name, pass.over_shards, {}};
    for (const auto& o : pass.writes) {
      const int slot = value_of(node.inputs[static_cast<size_t>(o.index)]).slot;
      sum.parameters.push_back(slot);
      written_[static_cast<size_t>(slot)] = true;
    }
    for (int b : reads) touch(b, kAfterAll);
    out_.shard_sums.push_back(std::move(sum));
    out_.shard_sum_reads.push_back(std::move(reads));
  }

  // The sum of two derivatives, in the layout of the first. Uses a new buffer, except in the final
  // buffer of a gradient, because the old one may be an output gradient or may already be read in
  // another layout.
  void add_sum(const Graph::Node& node) {
    const int a = node.inputs[0], v = node.outputs[0];
    const std::vector<int>& known = layouts_[static_cast<size_t>(a)];
    const int first = known.empty() ? in_layout(a, spec_of(a), node.name) : known.front();
    const TensorSpec spec = buffer_spec(first);
    const int second = in_layout(node.inputs[1], spec, node.name);
    const int sum = placed_[static_cast<size_t>(v)] >= 0 && placed_[static_cast<size_t>(a)] >= 0
                        ? first
                        : add_buffer(spec);
    add_step(kernels::accumulate(table_, spec), {first, second}, {sum}, node.name + ": sum");
    layouts_[static_cast<size_t>(v)] = {sum};
    keep_in_place(v, node.name);
  }

  // The backward passes of a kernel that was compiled before.
  void add_backward_passes(const Graph::Node& node, const KernelGradient& gradient) {
    const auto i = static_cast<size_t>(value_of(node.inputs[gradient.inputs()]).slot);
    if (graph_.nodes()[i].op != gradient.of()) {
      throw InternalError("[plan] " + node.name + ": a gradient without its op");
    }
    std::map<int, std::vector<int>> zeros;  // by output of the op
    std::vector<bool> summed(node.inputs.size(), false);
    for (const auto& pass : kernels_[i].backward) {
      const auto result = [&](const Operand& o) {
        const int k = gradient.diff_input(static_cast<size_t>(o.index));
        return k < 0 ? -1 : node.outputs[static_cast<size_t>(k)];
      };
      if (std::none_of(pass.writes.begin(), pass.writes.end(),
                       [&](const Operand& o) { return result(o) >= 0; })) {
        continue;
      }
      std::vector<int> reads;
      for (const auto& o : pass.reads) reads.push_back(backward_read(node, gradient, i, o, zeros));
      if (options_.sums_over_shards && pass.over_shards.defined()) {
        for (const auto& o : pass.writes) summed[static_cast<size_t>(o.index)] = true;
        sum_over_shards(node, pass, std::move(reads));
        continue;
      }
      const int first = node.inputs[static_cast<size_t>(pass.writes.front().index)];
      if (value_of(first).source != Graph::Source::parameter && needs_no_copy(pass, reads)) {
        layouts_[static_cast<size_t>(result(pass.writes.front()))] = {reads.front()};
        continue;
      }
      std::vector<int> writes;
      for (const auto& o : pass.writes) {
        const int v = result(o);
        writes.push_back(v < 0 ? add_buffer(o.spec) : result_buffer(v, o.spec));
      }
      add_step(pass, reads, writes, node.name + ": gradient");
      for (const auto& o : pass.writes) {
        if (result(o) >= 0) keep_in_place(result(o), node.name);
      }
    }
    for (size_t k = 0; k < gradient.inputs(); ++k) {
      const int at = gradient.diff_input(k);
      if (at < 0 || summed[k]) continue;
      const int v = node.outputs[static_cast<size_t>(at)];
      if (layouts_[static_cast<size_t>(v)].empty()) {
        throw Unsupported("[" + node.name + "] " + std::string(gradient.type()) +
                          " has no gradient with respect to its input " + std::to_string(k + 1));
      }
    }
  }

  int backward_read(const Graph::Node& node, const KernelGradient& gradient, size_t i,
                    const Operand& o, std::map<int, std::vector<int>>& zeros) {
    const auto index = static_cast<size_t>(o.index);
    switch (o.kind) {
      case Kind::input:
        return in_layout(node.inputs[index], o.spec, node.name);
      case Kind::output:
        return in_layout(node.inputs[gradient.inputs() + index], o.spec, node.name);
      case Kind::workspace:
        return workspaces_[i];
      default:
        break;
    }
    const int at = gradient.diff_output(index);
    if (at >= 0) return in_layout(node.inputs[static_cast<size_t>(at)], o.spec, node.name);
    std::vector<int>& known = zeros[o.index];
    if (known.empty()) {
      known.push_back(add_buffer(o.spec));
      add_step(kernels::zero(table_, o.spec), {}, {known.front()}, node.name + ": zero");
    }
    for (const int b : known) {
      if (same_memory(buffer_spec(b), o.spec)) return b;
    }
    known.push_back(converted(known.front(), o.spec, node.name));
    return known.back();
  }

  void convert_into(int from, int to, const std::string& name) {
    int source = from;
    const TensorSpec goal = buffer_spec(to);
    if (!(buffer_spec(from).shape == goal.shape)) {
      source = converted(from, {buffer_spec(from).shape, goal.dtype, nullptr}, name);
    }
    const TensorSpec have =
        buffer_spec(source).shape == goal.shape ? buffer_spec(source) : goal.plain();
    add_step(kernels::reorder(table_, have, goal), {source}, {to}, name + ": layout", true);
  }

  void finish_gradients() {
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const int to = gradient_buffers_[p], v = derivatives_.parameter_gradients[p];
      out_.reached_parameters.push_back(written_[p] || v >= 0);
      if (written_[p]) continue;
      if (v < 0) {
        if (options_.sums_over_shards) continue;
        add_step(kernels::zero(table_, buffer_spec(to)), {}, {to}, "unused parameter: zero");
        continue;
      }
      convert_into(in_layout(v, buffer_spec(to), "gradient"), to, "gradient");
      written_[p] = true;
    }
    out_.input_gradients.assign(out_.inputs.size(), -1);
    for (size_t i = 0; i < derivatives_.inputs.size(); ++i) {
      const int of = derivatives_.inputs[i];
      if (of < 0) continue;
      const int v = derivatives_.input_gradients[i];
      int diff = 0;
      if (v < 0) {
        diff = add_buffer(spec_of(of));
        add_step(kernels::zero(table_, spec_of(of)), {}, {diff}, "unused input: zero");
      } else {
        diff = in_layout(v, spec_of(of), "input gradient");
      }
      touch(diff, kAfterAll);
      out_.input_gradients[i] = diff;
    }
    out_.total_output_gradients.assign(graph_.outputs().size(), -1);
    for (size_t k = 0; k < graph_.outputs().size(); ++k) {
      const int v = derivatives_.total_output_gradients[k];
      if (v < 0) continue;
      const int diff = in_layout(v, spec_of(graph_.outputs()[k]).plain(), "output gradient");
      touch(diff, kAfterAll);
      out_.total_output_gradients[k] = diff;
    }
  }

  const Graph& graph_;
  const DifferentiatedGraph& derivatives_;
  const std::vector<Shape>& parameters_;
  const PlanOptions& options_;
  const kernels::Table& table_;
  Plan::State& out_;
  std::vector<kernels::Kernel> kernels_;   // by node
  std::vector<int> workspaces_;            // by node: buffer; -1: none
  std::vector<std::vector<int>> layouts_;  // by value: buffers that hold it, the original first
  std::vector<int> placed_;                // by value: parameter in whose final buffer it is; -1
  std::vector<int> gradient_buffers_;      // by parameter
  std::vector<bool> written_;              // by parameter
};

}  // namespace

Plan::Plan(const Graph& graph, std::vector<Shape> parameters, const PlanOptions& options,
           Device device)
    : state_(std::make_unique<State>()) {
  if (!device.is_cpu()) memory_of(device).activate();
  state_->device = device;
  std::vector<int> kept;  // outputs whose derivatives a backward run starts from
  if (options.gradients) kept = options.differentiated;
  const Graph fused = options.fuses_pairs ? graph.fused(kept, &kernels::table_for(device)) : graph;
  // Sums of narrow derivatives are narrow, which those of an expression are not.
  const DifferentiatedGraph all = with_expressions(
      differentiated(fused, options, parameters.size()), !is_narrow(options.precision));
  Compiler(all, parameters, options, device, *state_).compile();
}

}  // namespace lockstep
