#include "lockstep/engine/plan/expressions.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "lockstep/engine/graph/differentiate.h"
#include "lockstep/engine/kernels/elementwise/broadcast_axes.h"
#include "lockstep/engine/ops/expression.h"
#include "lockstep/engine/ops/reduce.h"

namespace lockstep {
namespace {

using kernels::Instruction;
using kernels::Opcode;

// The most instructions and inputs of a result that two expressions compute, each for itself:
// reading the inputs twice takes no longer than writing and reading the result.
constexpr size_t kMostRepeated = 8, kMostRepeatedInputs = 2;
constexpr size_t kMostInputs = kernels::kMostExpressionInputs;
constexpr size_t kMostInstructions = kernels::kMostInstructions;
// With strided inputs every back end supports results of this rank.
constexpr int kMostAxes = 8;

// How an expression reads its inputs.
struct Reading {
  std::vector<kernels::InputStrides> strided = {};  // as ExpressionProblem
  bool repeated = false;  // an input is read in two ways, so a result may not overwrite it
};

class Expression final : public FloatOp {
 public:
  Expression(std::vector<Instruction> program, Reading reading, Shape dst)
      : program_(std::move(program)), reading_(std::move(reading)), dst_(std::move(dst)) {}
  std::string_view type() const override { return "expression"; }
  std::vector<Shape> infer_shapes(std::span<const Shape>) const override { return {dst_}; }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    kernels::Kernel kernel = ops::compile_expression(table, in, dst_, program_, reading_.strided);
    if (reading_.repeated) kernel.forward.in_place.clear();
    return kernel;
  }

 private:
  std::vector<Instruction> program_;
  Reading reading_;
  Shape dst_;
};

// A reduction of what an expression computes.
class ReducedExpression final : public FloatOp {
 public:
  ReducedExpression(kernels::ReduceProblem problem, std::vector<Instruction> program,
                    Reading reading, Shape dst)
      : problem_(std::move(problem)),
        program_(std::move(program)),
        reading_(std::move(reading)),
        dst_(std::move(dst)) {}
  std::string_view type() const override { return "reduced expression"; }
  std::vector<Shape> infer_shapes(std::span<const Shape>) const override { return {dst_}; }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    kernels::ReduceProblem problem = problem_;
    const Shape& of = problem.src.shape;
    problem.of = {{}, of, program_, reading_.strided};
    bool rows_apart = true;
    for (size_t i = 0; i < in.size(); ++i) {
      problem.of.src.push_back(in[i].plain());
      rows_apart = rows_apart && (problem.of.is_strided(i)
                                      ? kernels::keeps_rows(reading_.strided[i], in[i].shape, of)
                                      : in[i].shape == of || in[i].shape.rank() == 0);
    }
    kernels::Kernel kernel = kernels::compile(table, problem);
    kernel.forward.writes[0].spec.shape = dst_;
    kernel.rows_apart = kernel.rows_apart && rows_apart;
    return kernel;
  }

 private:
  kernels::ReduceProblem problem_;
  std::vector<Instruction> program_;
  Reading reading_;
  Shape dst_;
};

bool is_expensive(Opcode opcode) {
  return kernels::is_elementary(opcode) || opcode == Opcode::divide || opcode == Opcode::sqrt ||
         opcode == Opcode::rsqrt || opcode == Opcode::reciprocal;
}

class Combining {
 public:
  Combining(const DifferentiatedGraph& of, bool sums)
      : of_(of), graph_(of.graph), nodes_(graph_.nodes()), sums_(sums) {
    producer_.assign(graph_.values().size(), -1);
    readers_.resize(graph_.values().size());
    reductions_.resize(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const int v : nodes_[i].outputs) producer_[index(v)] = static_cast<int>(i);
      const auto& inputs = nodes_[i].inputs;
      if (!inputs.empty()) {
        reductions_[i] = ops::reduction_of(*nodes_[i].op, graph_.spec(inputs.front()));
      }
      if (is_constant(i)) continue;  // its input only says where it is
      for (const int v : inputs) readers_[index(v)].insert(i);
    }
    is_result_.assign(graph_.values().size(), false);
    for (const auto* const list : {&graph_.outputs(), &of.parameter_gradients, &of.input_gradients,
                                   &of.total_output_gradients}) {
      for (const int v : *list) {
        if (v >= 0) is_result_[index(v)] = true;
      }
    }
  }

  DifferentiatedGraph combined() {
    find_roots();
    parts_.resize(nodes_.size());
    taken_.resize(nodes_.size());
    for (size_t j = 0; j < nodes_.size(); ++j) {
      if (instruction_of(j) || reductions_[j]) take_parts(j);
    }
    return emitted();
  }

 private:
  static size_t index(int v) { return static_cast<size_t>(v); }
  const Shape& shape(int v) const { return graph_.shape(v); }

  const Instruction* instruction_of(size_t i) const {
    const Graph::Node& node = nodes_[i];
    if (is_accumulation(*node.op) && !sums_) return nullptr;
    const Instruction* const at = node.op->instruction();
    if (!at || at->opcode == Opcode::constant) return at;
    return kernels::arity_of(at->opcode) == static_cast<int>(node.inputs.size()) ? at : nullptr;
  }
  // Whether the reader's expression can compute a value that it reads.
  bool can_compute(size_t reader, int v) const {
    if (reductions_[reader]) return true;
    return instruction_of(reader) && shape(nodes_[reader].outputs.front()) == shape(v);
  }
  bool is_constant(size_t i) const {
    const Instruction* const at = instruction_of(i);
    return at && at->opcode == Opcode::constant;
  }

  // Whether the expressions of all readers of a node's result can compute it.
  bool may_vanish(size_t i) const {
    const int v = nodes_[i].outputs.front();
    if (!instruction_of(i) || is_result_[index(v)]) return false;
    const auto& readers = readers_[index(v)];
    return std::all_of(readers.begin(), readers.end(), [&](size_t reader) {
      // A sum of derivatives alone is faster where it is computed in place.
      const bool sums = is_accumulation(*nodes_[i].op) && is_accumulation(*nodes_[reader].op);
      return !sums && can_compute(reader, v);
    });
  }

  // Whether the expressions of all readers read the result of node i where it is. Rows of elements
  // must follow each other: others are copied faster by a copy's own kernel.
  bool is_read_by_strides(size_t i) const {
    const Graph::Node& node = nodes_[i];
    if (node.inputs.size() != 1 || node.op->broadcasts() || is_result_[index(node.outputs[0])]) {
      return false;
    }
    if (graph_.spec(node.inputs[0]).dtype != DType::f32) return false;
    const auto view = node.op->view(shape(node.inputs[0]));
    if (!view) return false;
    for (int axis = view->shape.rank(); axis-- > 0;) {
      if (view->shape[axis] == 1) continue;
      const int64_t stride = view->strides[static_cast<size_t>(axis)];
      if (stride != 0 && stride != 1) return false;
      break;
    }
    const auto& readers = readers_[index(node.outputs[0])];
    return std::all_of(readers.begin(), readers.end(), [&](size_t reader) {
      const int rank = shape(nodes_[reader].outputs[0]).rank();
      return instruction_of(reader) && rank >= 1 && rank <= kMostAxes;
    });
  }

  // Of each node, the last instructions of the expressions that it may be a part of: itself, or
  // those of all readers of its result, if they are few enough.
  void find_roots() {
    roots_.resize(nodes_.size());
    for (size_t i = nodes_.size(); i-- > 0;) {
      std::set<size_t> roots;
      if (may_vanish(i)) {
        for (const size_t reader : readers_[index(nodes_[i].outputs.front())]) {
          roots.insert(roots_[reader].begin(), roots_[reader].end());
        }
      }
      const size_t most = instruction_of(i) && is_expensive(instruction_of(i)->opcode) ? 1 : 2;
      roots_[i] = roots.empty() || roots.size() > most ? std::set{i} : roots;
    }
  }

  // What an expression reads.
  struct Input {
    int value;
    int as;  // the value that takes elements of it (Op::view), or itself
    auto operator<=>(const Input&) const = default;
  };
  // What a node's expression consists of.
  struct Parts {
    std::set<Input> inputs;
    std::set<size_t> nodes;  // instructions
    bool expensive = false;
  };

  // Whether node i may become a part of those that read its result.
  bool may_be_part(size_t i) const {
    if (is_constant(i) || nodes_[i].op->broadcasts() || is_read_by_strides(i)) return true;
    if (!may_vanish(i)) return false;
    if (roots_[i].size() == 1) return roots_[i].count(i) == 0;
    const Parts& parts = parts_[i];
    return !parts.expensive && parts.nodes.size() <= kMostRepeated &&
           parts.inputs.size() <= kMostRepeatedInputs;
  }

  void take_parts(size_t j) {
    for (const int v : nodes_[j].inputs) {
      if (producer_[index(v)] < 0) continue;
      const size_t i = producer_of(v);
      if (!instruction_of(j) && !instruction_of(i)) continue;  // a reduction needs an instruction
      if (may_be_part(i)) taken_[j].insert(v);
    }
    parts_[j] = parts_of(j);
    while (parts_[j].inputs.size() > kMostInputs || parts_[j].nodes.size() > kMostInstructions) {
      // Constants and broadcasts stay: they add no more inputs than they replace.
      const auto largest = std::max_element(taken_[j].begin(), taken_[j].end(), [&](int a, int b) {
        return instructions_of(a) < instructions_of(b);
      });
      taken_[j].erase(largest);
      parts_[j] = parts_of(j);
    }
  }
  size_t producer_of(int v) const { return static_cast<size_t>(producer_[index(v)]); }
  size_t instructions_of(int v) const { return parts_[producer_of(v)].nodes.size(); }

  Parts parts_of(size_t j) const {
    Parts parts;
    if (const Instruction* const at = instruction_of(j)) {
      parts.nodes = {j};
      parts.expensive = is_expensive(at->opcode);
      if (at->opcode == Opcode::constant) return parts;
    }
    for (const int v : nodes_[j].inputs) add_parts(j, v, parts);
    return parts;
  }
  void add_parts(size_t j, int v, Parts& parts) const {
    if (taken_[j].count(v) == 0) {
      parts.inputs.insert({v, v});
      return;
    }
    const size_t i = producer_of(v);
    if (instruction_of(i)) {
      const Parts& more = parts_[i];
      parts.inputs.insert(more.inputs.begin(), more.inputs.end());
      parts.nodes.insert(more.nodes.begin(), more.nodes.end());
      parts.expensive = parts.expensive || more.expensive;
      return;
    }
    const int from = nodes_[i].inputs.front();
    if (!nodes_[i].op->broadcasts()) {
      parts.inputs.insert({from, v});
    } else if (producer_[index(from)] >= 0 && is_constant(producer_of(from))) {
      parts.nodes.insert(producer_of(from));
    } else {
      parts.inputs.insert({from, from});
    }
  }

  // The program of a node; inputs are numbered in the order of their values.
  class Program {
   public:
    Program(const Combining& of, size_t node) : of_(of) {
      const std::set<Input>& inputs = of.parts_[node].inputs;
      for (const Input& input : inputs) {
        operands_.emplace(input.as, static_cast<uint8_t>(operands_.size()));
      }
      first_ = inputs.size();
      if (of.instruction_of(node)) {
        add(node);
      } else {
        operand(of.nodes_[node].inputs.front());
      }
    }
    std::vector<Instruction> instructions;

   private:
    // Adds what node i computes and returns the number of its operand.
    uint8_t add(size_t i) {
      Instruction at = *of_.instruction_of(i);
      const std::array<uint8_t*, 3> arguments{&at.a, &at.b, &at.c};
      for (int k = 0; k < kernels::arity_of(at.opcode); ++k) {
        uint8_t& argument = *arguments[static_cast<size_t>(k)];
        argument = operand(of_.nodes_[i].inputs[argument]);
      }
      instructions.push_back(at);
      return static_cast<uint8_t>(first_ + instructions.size() - 1);
    }
    uint8_t operand(int v) {
      const auto known = operands_.find(v);
      if (known != operands_.end()) return known->second;
      const size_t i = of_.producer_of(v);
      const uint8_t number = of_.instruction_of(i) ? add(i) : operand(of_.nodes_[i].inputs[0]);
      operands_[v] = number;
      return number;
    }

    const Combining& of_;
    size_t first_ = 0;                 // the number of the first instruction's result
    std::map<int, uint8_t> operands_;  // by value
  };

  DifferentiatedGraph emitted() const {
    std::vector<bool> needed = is_result_;
    std::vector<bool> emits(nodes_.size(), false);
    for (size_t i = nodes_.size(); i-- > 0;) {
      for (const int v : nodes_[i].outputs) emits[i] = emits[i] || needed[index(v)];
      if (!emits[i]) continue;
      if (is_combined(i)) {
        for (const Input& input : parts_[i].inputs) needed[index(input.value)] = true;
      } else {
        for (const int v : nodes_[i].inputs) needed[index(v)] = true;
      }
    }
    DifferentiatedGraph result;
    std::vector<int> moved;
    result.graph = graph_.without_nodes(moved);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (i == of_.forward_nodes) result.forward_nodes = result.graph.nodes().size();
      if (emits[i]) emit(i, result.graph, moved);
    }
    if (of_.forward_nodes == nodes_.size()) result.forward_nodes = result.graph.nodes().size();
    const auto all_moved = [&](std::vector<int> values) {
      for (int& v : values) v = v < 0 ? v : moved[index(v)];
      return values;
    };
    for (const int v : graph_.outputs()) result.graph.mark_output(moved[index(v)]);
    result.seeds = all_moved(of_.seeds);
    result.parameter_gradients = all_moved(of_.parameter_gradients);
    result.inputs = all_moved(of_.inputs);
    result.input_gradients = all_moved(of_.input_gradients);
    result.total_output_gradients = all_moved(of_.total_output_gradients);
    return result;
  }

  // Whether an expression replaces node i, if it is needed.
  bool is_combined(size_t i) const { return !taken_[i].empty(); }

  // How the expression of node i, with results of shape `of`, reads its inputs.
  Reading reading_of(size_t i, const Shape& of) const {
    Reading reading;
    reading.strided.resize(parts_[i].inputs.size());
    size_t k = 0;
    int before = -1;
    bool any = false;
    for (const auto& [value, as] : parts_[i].inputs) {
      reading.repeated = reading.repeated || value == before;
      before = value;
      kernels::InputStrides& strided = reading.strided[k++];
      if (as == value) continue;
      any = true;
      const StridedView view = *nodes_[producer_of(as)].op->view(shape(value));
      strided.offset = view.offset;
      strided.strides.assign(static_cast<size_t>(of.rank()), 0);
      // Broadcasting aligns axes at the last one and repeats axes of 1.
      for (int axis = 1; axis <= view.shape.rank(); ++axis) {
        if (view.shape[-axis] == 1) continue;
        strided.strides[static_cast<size_t>(of.rank() - axis)] =
            view.strides[static_cast<size_t>(view.shape.rank() - axis)];
      }
    }
    if (!any) reading.strided.clear();
    return reading;
  }

  void emit(size_t i, Graph& to, std::vector<int>& moved) const {
    const Graph::Node& node = nodes_[i];
    OpPtr op = node.op;
    std::vector<int> inputs = node.inputs;
    if (is_combined(i)) {
      std::vector<Instruction> program = Program(*this, i).instructions;
      const Shape& dst = shape(node.outputs.front());
      if (const auto& reduction = reductions_[i]) {
        op = std::make_shared<ReducedExpression>(*reduction, std::move(program),
                                                 reading_of(i, reduction->src.shape), dst);
      } else {
        op = std::make_shared<Expression>(std::move(program), reading_of(i, dst), dst);
      }
      inputs.clear();
      for (const Input& input : parts_[i].inputs) inputs.push_back(input.value);
    }
    for (int& v : inputs) v = moved[index(v)];
    const std::vector<int> outputs = to.add(std::move(op), std::move(inputs), node.name);
    for (size_t k = 0; k < outputs.size(); ++k) moved[index(node.outputs[k])] = outputs[k];
  }

  const DifferentiatedGraph& of_;
  const Graph& graph_;
  const std::deque<Graph::Node>& nodes_;
  const bool sums_;
  std::vector<int> producer_;                                      // by value: the node; -1: none
  std::vector<std::set<size_t>> readers_;                          // by value: nodes
  std::vector<bool> is_result_;                                    // by value
  std::vector<std::optional<kernels::ReduceProblem>> reductions_;  // by node
  std::vector<std::set<size_t>> roots_;                            // by node
  std::vector<Parts> parts_;                                       // by node
  std::vector<std::set<int>> taken_;  // by node: inputs whose producers are parts of it
};

}  // namespace

DifferentiatedGraph with_expressions(const DifferentiatedGraph& graph, bool sums) {
  return Combining(graph, sums).combined();
}

}  // namespace lockstep
