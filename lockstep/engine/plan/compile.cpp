#include "lockstep/engine/plan/compile.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/plan/derivatives.h"

namespace lockstep {
namespace {

using kernels::Operand;
using kernels::Pass;
using Kind = Operand::Kind;
using Place = PlanBuffer::Place;

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
  Compiler(const Graph& graph, const std::vector<Shape>& parameters, const PlanOptions& options,
           Device device, Plan::State& out)
      : graph_(graph),
        parameters_(parameters),
        options_(options),
        table_(kernels::table_for(device)),
        out_(out),
        layouts_(graph.values().size()),
        diffs_(graph.values().size(), -1) {}

  void compile() {
    kernels::check_precision(table_, options_.precision);
    place_inputs();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) forward(graph_.nodes()[i]);
    for (int value : graph_.outputs()) {
      const int buffer = in_layout(value, spec_of(value).plain(), "output");
      touch(buffer, kAfterAll);
      out_.outputs.push_back(buffer);
    }
    out_.forward_steps = static_cast<int>(out_.steps.size());
    if (options_.gradients) {
      backward();
      out_.shards_together =
          sums_over_shards_possible(graph_, kernels_, parameters_.size()) &&
          std::all_of(written_.begin(), written_.end(), [](bool written) { return written; });
    }
    if (options_.sums_over_shards) {
      if (!out_.shards_together) throw InternalError("[plan] gradients have no sums over shards");
      out_.gradient_layout.bytes = 0;
    }
    for (const auto& step : out_.steps) {
      out_.scratch_bytes = std::max(out_.scratch_bytes, step.pass.scratch_bytes);
    }
    write_in_place(out_.buffers, out_.steps);
    out_.arena_bytes = place_buffers(out_.buffers);
  }

 private:
  const Graph::Value& value_of(int v) const { return graph_.values()[static_cast<size_t>(v)]; }
  TensorSpec spec_of(int v) const { return {value_of(v).shape, value_of(v).dtype, nullptr}; }

  int add_buffer(const TensorSpec& spec, Place place = Place::arena, int slot = 0) {
    PlanBuffer buffer;
    buffer.place = place;
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
    out_.steps.push_back(
        {std::move(pass), std::move(reads), std::move(writes), std::move(name), conversion});
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
      known.push_back(add_buffer(wanted, Place::parameter, value.slot));
      return known.back();
    }
    if (value.source == Graph::Source::state && known.empty()) {
      known.push_back(add_buffer(spec_of(v), Place::state, value.slot));
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
      add_step(table_.reorder(wanted.plain(), wanted), {from}, {to}, name + ": layout", true);
      return to;
    }
    const int to = add_buffer(wanted);
    add_step(table_.reorder(have, wanted), {from}, {to}, name + ": layout", true);
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
    return pass.copies && out_.buffers[static_cast<size_t>(reads.front())].place == Place::arena &&
           same_memory(buffer_spec(reads.front()), pass.writes.front().spec);
  }

  void forward(const Graph::Node& node) {
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
      const int buffer = add_buffer(o.spec);
      if (o.kind == Kind::workspace) {
        workspace = buffer;
      } else {
        layouts_[static_cast<size_t>(node.outputs[static_cast<size_t>(o.index)])] = {buffer};
      }
      writes.push_back(buffer);
    }
    add_step(kernel.forward, reads, writes, node.name);
    kernels_.push_back(std::move(kernel));
    workspaces_.push_back(workspace);
  }

  void backward() {
    const std::vector<bool> wanted = values_with_derivatives(graph_, options_);
    choose_gradient_layout(wanted);
    out_.output_gradients.assign(graph_.outputs().size(), -1);
    for (int k : options_.differentiated) {
      const int value = graph_.outputs()[static_cast<size_t>(k)];
      const int buffer = add_buffer(spec_of(value));
      touch(buffer, kBeforeAll);
      touch(buffer, kAfterAll);
      out_.output_gradients[static_cast<size_t>(k)] = buffer;
      contribute_read_only(value, buffer);
    }
    for (size_t i = graph_.nodes().size(); i-- > 0;) backward(i, wanted);
    finish_gradients(wanted);
  }

  void choose_gradient_layout(const std::vector<bool>& wanted) {
    GradientLayout& layout = out_.gradient_layout;
    layout = options_.gradient_layout ? *options_.gradient_layout
                                      : gradient_layout_of(graph_, kernels_, parameters_, wanted);
    gradient_buffers_.resize(parameters_.size());
    for (size_t p = 0; p < parameters_.size(); ++p) {
      gradient_buffers_[p] =
          add_buffer(layout.entries[p].spec, Place::gradient, static_cast<int>(p));
    }
    written_.assign(parameters_.size(), false);
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

  // Adds a derivative that the caller provides and that must not be overwritten.
  void contribute_read_only(int v, int buffer) {
    int& diff = diffs_[static_cast<size_t>(v)];
    if (diff < 0) {
      diff = buffer;
      return;
    }
    const int sum = add_buffer(buffer_spec(diff));
    add_step(table_.accumulate(buffer_spec(diff)), {diff, buffer}, {sum}, "output gradient: sum");
    diff = sum;
  }

  void backward(size_t i, const std::vector<bool>& wanted) {
    const Graph::Node& node = graph_.nodes()[i];
    bool reached = false;
    for (int v : node.outputs) reached |= diffs_[static_cast<size_t>(v)] >= 0;
    if (!reached) return;
    for (const auto& pass : kernels_[i].backward) {
      bool any = false;
      for (const auto& o : pass.writes) {
        any |= wanted[static_cast<size_t>(node.inputs[static_cast<size_t>(o.index)])];
      }
      if (!any) continue;
      std::vector<int> reads;
      for (const auto& o : pass.reads) reads.push_back(backward_read(node, i, o));
      if (options_.sums_over_shards && pass.over_shards.defined()) {
        sum_over_shards(node, pass, std::move(reads));
        continue;
      }
      const int first = node.inputs[static_cast<size_t>(pass.writes.front().index)];
      if (value_of(first).source != Graph::Source::parameter && needs_no_copy(pass, reads)) {
        contribute(first, reads.front(), node.name);
        continue;
      }
      std::vector<int> writes;
      std::vector<std::pair<int, int>> contributions;  // value, buffer
      for (const auto& o : pass.writes) {
        const int v = node.inputs[static_cast<size_t>(o.index)];
        writes.push_back(backward_write(v, o.spec, writes));
        if (wanted[static_cast<size_t>(v)]) contributions.emplace_back(v, writes.back());
      }
      add_step(pass, reads, writes, node.name + ": gradient");
      for (const auto& [v, buffer] : contributions) contribute(v, buffer, node.name);
    }
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (wanted[static_cast<size_t>(node.inputs[k])]) check_differentiable(node, kernels_[i], k);
    }
  }

  int backward_read(const Graph::Node& node, size_t i, const Operand& o) {
    const auto index = static_cast<size_t>(o.index);
    switch (o.kind) {
      case Kind::input:
        return in_layout(node.inputs[index], o.spec, node.name);
      case Kind::output:
        return in_layout(node.outputs[index], o.spec, node.name);
      case Kind::workspace:
        return workspaces_[i];
      default:
        break;
    }
    const int v = node.outputs[index];
    int diff = diffs_[static_cast<size_t>(v)];
    if (diff < 0) {
      diff = add_buffer(o.spec);
      add_step(table_.zero(o.spec), {}, {diff}, node.name + ": zero");
      diffs_[static_cast<size_t>(v)] = diff;
    }
    const auto key = std::pair(diff, v);
    for (int b : diff_layouts_[key]) {
      if (same_memory(buffer_spec(b), o.spec)) return b;
    }
    const int b = converted(diff, o.spec, node.name);
    diff_layouts_[key].push_back(b);
    return b;
  }

  // Returns the buffer for the derivative of an input. This is its final buffer if that is unused
  // so far and not among `writes`, because an op may read one parameter twice.
  int backward_write(int v, const TensorSpec& spec, const std::vector<int>& writes) {
    const auto& value = value_of(v);
    if (value.source == Graph::Source::parameter) {
      const auto p = static_cast<size_t>(value.slot);
      const int place = gradient_buffers_[p];
      const bool taken = std::find(writes.begin(), writes.end(), place) != writes.end();
      if (!written_[p] && !taken && same_memory(buffer_spec(place), spec)) return place;
    }
    return add_buffer(spec);
  }

  void contribute(int v, int buffer, const std::string& name) {
    const auto& value = value_of(v);
    if (value.source == Graph::Source::parameter) {
      const auto p = static_cast<size_t>(value.slot);
      const int place = gradient_buffers_[p];
      if (!written_[p]) {
        written_[p] = true;
        if (buffer != place) convert_into(buffer, place, name);
        return;
      }
      const int term = converted(buffer, buffer_spec(place), name);
      add_step(table_.accumulate(buffer_spec(place)), {place, term}, {place}, name + ": sum");
      return;
    }
    int& diff = diffs_[static_cast<size_t>(v)];
    if (diff < 0) {
      diff = buffer;
      return;
    }
    // Uses a new buffer, because the old one may be an output gradient or may already be read in
    // another layout.
    const int term = converted(buffer, buffer_spec(diff), name);
    const int sum = add_buffer(buffer_spec(diff));
    add_step(table_.accumulate(buffer_spec(diff)), {diff, term}, {sum}, name + ": sum");
    diff = sum;
  }

  void convert_into(int from, int to, const std::string& name) {
    int source = from;
    const TensorSpec goal = buffer_spec(to);
    if (!(buffer_spec(from).shape == goal.shape)) {
      source = converted(from, {buffer_spec(from).shape, goal.dtype, nullptr}, name);
    }
    const TensorSpec have =
        buffer_spec(source).shape == goal.shape ? buffer_spec(source) : goal.plain();
    add_step(table_.reorder(have, goal), {source}, {to}, name + ": layout", true);
  }

  void finish_gradients(const std::vector<bool>& wanted) {
    for (size_t p = 0; p < parameters_.size(); ++p) {
      if (!written_[p]) {
        add_step(table_.zero(buffer_spec(gradient_buffers_[p])), {}, {gradient_buffers_[p]},
                 "unused parameter: zero");
      }
    }
    out_.input_gradients.assign(out_.inputs.size(), -1);
    for (size_t v = 0; v < graph_.values().size(); ++v) {
      const auto& value = graph_.values()[v];
      if (value.source != Graph::Source::input || !wanted[v]) continue;
      int diff = diffs_[v];
      const TensorSpec spec = spec_of(static_cast<int>(v));
      if (diff < 0) {
        diff = add_buffer(spec);
        add_step(table_.zero(spec), {}, {diff}, "unused input: zero");
      }
      diff = converted(diff, spec, "input gradient");
      touch(diff, kAfterAll);
      out_.input_gradients[static_cast<size_t>(value.slot)] = diff;
    }
    out_.total_output_gradients.assign(graph_.outputs().size(), -1);
    for (int k : options_.differentiated) {
      if (!has_total_output_gradient(graph_, options_, k)) continue;
      const int value = graph_.outputs()[static_cast<size_t>(k)];
      const int diff =
          converted(diffs_[static_cast<size_t>(value)], spec_of(value).plain(), "output gradient");
      touch(diff, kAfterAll);
      out_.total_output_gradients[static_cast<size_t>(k)] = diff;
    }
  }

  const Graph& graph_;
  const std::vector<Shape>& parameters_;
  const PlanOptions& options_;
  const kernels::Table& table_;
  Plan::State& out_;
  std::vector<kernels::Kernel> kernels_;   // by node
  std::vector<int> workspaces_;            // by node: buffer; -1: none
  std::vector<std::vector<int>> layouts_;  // by value: buffers that hold it, the original first
  std::vector<int> diffs_;                 // by value: buffer of its derivative
  std::map<std::pair<int, int>, std::vector<int>> diff_layouts_;
  std::vector<int> gradient_buffers_;  // by parameter
  std::vector<bool> written_;          // by parameter
};

}  // namespace

Plan::Plan(const Graph& graph, std::vector<Shape> parameters, const PlanOptions& options,
           Device device)
    : state_(std::make_unique<State>()) {
  if (!device.is_cpu()) memory_of(device).activate();
  state_->device = device;
  const Graph fused = graph.fused(options.gradients ? options.differentiated : std::vector<int>(),
                                  &kernels::table_for(device));
  Compiler(fused, parameters, options, device, *state_).compile();
}

}  // namespace lockstep
