// Expressions run a tile of dst at a time: each instruction is a loop over the tile, and what the
// next instructions need stays in the first cache. An operand is the memory of an input, a number,
// or a tile in scratch memory. The last instruction writes a tile of dst.
#include "lockstep/engine/kernels/cpu/elementwise/expression_stream.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/engine/kernels/cpu/elementwise/expression_loops.h"
#include "lockstep/engine/kernels/elementwise/broadcast_axes.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kTile = ExpressionStream::kMostTogether;
// A row of at least this many elements is one tile if a larger tile would need a copy of an input.
constexpr int64_t kLongRow = 128;

// How an input is read in a tile.
enum class Reading : uint8_t {
  in_place,  // a run of elements
  number,    // one element
  copied,    // into scratch memory, as a run
};

// The elements of a tile: `count` steps along axis `split`, and all of the axes after it.
struct Tiling {
  int split = -1;     // -1: one tile is all
  int64_t count = 1;  // of the last tile along the axis: the rest
  int64_t each = 1;   // elements of the axes after `split`
  std::vector<Reading> readings;
};

// How an input with these strides is read if tiles have all axes from `first` on.
Reading reading_of(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                   size_t first) {
  bool run = true, number = true;
  int64_t elements = 1;
  for (size_t axis = dims.size(); axis-- > first;) {
    run = run && strides[axis] == elements;
    number = number && strides[axis] == 0;
    elements *= dims[axis];
  }
  return number ? Reading::number : run ? Reading::in_place : Reading::copied;
}

Tiling tiling_of(const BroadcastAxes& axes) {
  const auto& dims = axes.dims;
  const auto readings = [&](size_t first) {
    std::vector<Reading> all;
    for (const auto& strides : axes.strides) all.push_back(reading_of(dims, strides, first));
    return all;
  };
  Tiling t{.readings = readings(dims.size())};
  for (size_t axis = dims.size(); axis-- > 0;) {
    const std::vector<Reading> with = readings(axis);
    t.split = static_cast<int>(axis);
    const bool whole = t.each * dims[axis] <= kTile;
    // What is the same in all tiles is copied once.
    bool copies = false;
    for (size_t i = 0; i < with.size(); ++i) {
      const auto& strides = axes.strides[i];
      const auto end = strides.begin() + static_cast<std::ptrdiff_t>(axis + (whole ? 0 : 1));
      copies = copies || (with[i] == Reading::copied &&
                          std::any_of(strides.begin(), end, [](int64_t s) { return s != 0; }));
    }
    if (t.each >= kLongRow && copies) return t;
    if (!whole) {
      t.count = kTile / t.each;
      if (t.count > 1) t.readings = with;
      return t;
    }
    t.readings = with;
    t.each *= dims[axis];
  }
  t.split = -1;
  return t;
}

// A chain of instructions on operands by their numbers.
struct Step {
  OpcodeChain chain;
  std::vector<int> from;
  int result;
  bool all_numbers = false;  // all arguments are
  // The number of the chain in kChains, and the mask of arguments that are one number.
  size_t loop = 0;
  unsigned numbers = 0;
};

constexpr OpcodeChain kMultiplyAdd{Opcode::multiply, Opcode::add};

// The index of a chain in kChains, or their number.
size_t loop_of(const OpcodeChain& chain) {
  if (chain == kMultiplyAdd) return static_cast<size_t>(Opcode::multiply_add);
  return static_cast<size_t>(std::find(kChains.begin(), kChains.end(), chain) - kChains.begin());
}

}  // namespace

// What is known before memory is.
struct ExpressionStream::Compiled {
  BroadcastAxes axes;
  Tiling tiling;
  int inputs = 0;
  std::vector<std::pair<int, float>> constants;  // operands and their values
  // In the order of the program. `once`: those whose result is the same in all tiles.
  std::vector<Step> once, each_tile;
  std::vector<int> copied_once, copied;  // inputs
  // Offsets of operands in scratch memory, in floats; -1: not there.
  std::vector<int64_t> offsets;
  int result = 0;
  bool result_is_number = false;
  int64_t scratch_floats = 0;
};

namespace {

using Compiled = ExpressionStream::Compiled;

class Compiler {
 public:
  explicit Compiler(const ExpressionProblem& p)
      : p_(p),
        inputs_(static_cast<int>(p.src.size())),
        operands_(inputs_ + static_cast<int>(p.program.size())) {
    check(p);
    c_.axes = broadcast_axes(p);
    c_.tiling = tiling_of(c_.axes);
    c_.inputs = inputs_;
    c_.result = operands_ - 1;
    c_.offsets.assign(static_cast<size_t>(operands_), -1);
  }

  Compiled compiled() {
    find_uses();
    for (int i = 0; i < inputs_; ++i) classify_input(i);
    for (int i = inputs_; i < operands_; ++i) {
      if (at(i).uses > 0) classify(i);
    }
    finish(c_.once, false);
    finish(c_.each_tile, true);
    c_.result_is_number = at(c_.result).number;
    // Tiles of results that stay come first: steps of other tiles may not take their memory.
    place_copies(true);
    for (Step& step : c_.once) place(step);
    place_copies(false);
    for (Step& step : c_.each_tile) place(step);
    c_.scratch_floats = static_cast<int64_t>(taken_.size()) * kTile;
    for (const int operand : numbers_) {
      c_.offsets[static_cast<size_t>(operand)] = c_.scratch_floats++;
    }
    return std::move(c_);
  }

 private:
  struct Known {
    int uses = 0;
    bool number = false;  // one number in each tile
    bool fixed = false;   // the same in all tiles
    bool stays = false;   // fixed, and read in each tile
    int last_use = -1;    // the last operand that is computed from it
  };
  Known& at(int operand) { return known_[static_cast<size_t>(operand)]; }

  const Instruction& instruction(int operand) const {
    return p_.program[static_cast<size_t>(operand - inputs_)];
  }
  std::vector<int> arguments_of(int operand) const {
    const Instruction& i = instruction(operand);
    std::vector<int> arguments{i.a, i.b, i.c};
    arguments.resize(static_cast<size_t>(arity_of(i.opcode)));
    return arguments;
  }

  void find_uses() {
    known_.resize(static_cast<size_t>(operands_));
    at(c_.result).uses = 1;
    for (int i = operands_; i-- > inputs_;) {
      if (at(i).uses == 0) continue;
      for (const int from : arguments_of(i)) ++at(from).uses;
    }
  }

  void classify_input(int i) {
    const auto& strides = c_.axes.strides[static_cast<size_t>(i)];
    at(i).number = c_.tiling.readings[static_cast<size_t>(i)] == Reading::number;
    // The axes from the first to the one that tiles are cut from.
    const auto before = at(i).number ? strides.size() : static_cast<size_t>(c_.tiling.split + 1);
    at(i).fixed = (at(i).number || c_.tiling.split >= 0) &&
                  std::count(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(before),
                             0) == static_cast<std::ptrdiff_t>(before);
  }

  void classify(int i) {
    const Instruction& from = instruction(i);
    if (from.opcode == Opcode::constant) {
      c_.constants.emplace_back(i, from.value);
      at(i).number = at(i).fixed = true;
      numbers_.push_back(i);
      return;
    }
    bool all_numbers = true, fixed = true;
    for (const int argument : arguments_of(i)) {
      all_numbers = all_numbers && at(argument).number;
      fixed = fixed && at(argument).fixed;
    }
    at(i).number = all_numbers;
    at(i).fixed = fixed && (all_numbers || i != c_.result);
    if (all_numbers) numbers_.push_back(i);
    auto& steps = at(i).fixed ? c_.once : c_.each_tile;
    const bool two = from.opcode == Opcode::multiply_add;
    Step step = chained(steps, two ? kMultiplyAdd : OpcodeChain{from.opcode}, i);
    step.all_numbers = all_numbers;
    steps.push_back(std::move(step));
  }

  // The step for `opcodes`, which an instruction has. If an argument is the result of a step that
  // nothing else reads, and there is a loop for both, one step replaces them.
  Step chained(std::vector<Step>& steps, const OpcodeChain& opcodes, int result) {
    const std::vector<int> arguments = arguments_of(result);
    const bool commutes =
        opcodes.opcodes[0] == Opcode::add || opcodes.opcodes[0] == Opcode::multiply;
    for (size_t k = 0; k < (commutes ? 2 : 1); ++k) {
      const auto first = std::find_if(steps.begin(), steps.end(),
                                      [&](const Step& s) { return s.result == arguments[k]; });
      if (first == steps.end() || first->all_numbers || at(arguments[k]).uses > 1) continue;
      const OpcodeChain both = first->chain.then(opcodes);
      if (loop_of(both) == kChains.size()) continue;
      Step step{both, first->from, result};
      for (size_t other = 0; other < arguments.size(); ++other) {
        if (other != k) step.from.push_back(arguments[other]);
      }
      steps.erase(first);
      return step;
    }
    return {opcodes, arguments, result};
  }

  // What the steps need of each other, once they are known.
  void finish(std::vector<Step>& steps, bool each_tile) {
    for (Step& step : steps) {
      step.loop = loop_of(step.chain);
      for (size_t k = 0; k < step.from.size(); ++k) {
        Known& from = at(step.from[k]);
        if (from.number && !step.all_numbers) step.numbers |= 1u << k;
        from.last_use = std::max(from.last_use, step.result);
        from.stays = from.stays || each_tile;
      }
    }
  }

  int64_t take_tile() {
    const auto free = std::find(taken_.begin(), taken_.end(), false) - taken_.begin();
    if (free == static_cast<std::ptrdiff_t>(taken_.size())) taken_.push_back(false);
    taken_[static_cast<size_t>(free)] = true;
    return free * kTile;
  }

  void place_copies(bool once) {
    for (int i = 0; i < inputs_; ++i) {
      const bool copies = c_.tiling.readings[static_cast<size_t>(i)] == Reading::copied;
      if (!copies || at(i).uses == 0 || at(i).fixed != once) continue;
      c_.offsets[static_cast<size_t>(i)] = take_tile();
      (once ? c_.copied_once : c_.copied).push_back(i);
    }
  }

  void place(const Step& step) {
    if (step.all_numbers) return;
    // Loops go element by element, so a result may take the tile of an argument.
    for (const int argument : step.from) {
      const Known& from = at(argument);
      if (argument < inputs_ || from.number || from.last_use != step.result) continue;
      if (from.fixed && from.stays) continue;
      taken_[static_cast<size_t>(c_.offsets[static_cast<size_t>(argument)] / kTile)] = false;
    }
    if (step.result != c_.result) c_.offsets[static_cast<size_t>(step.result)] = take_tile();
  }

  const ExpressionProblem& p_;
  const int inputs_, operands_;
  Compiled c_;
  std::vector<Known> known_;
  std::vector<int> numbers_;
  std::vector<bool> taken_;  // tiles
};

// Copies the elements of a tile of `count` steps along the tiling's axis as a run.
float* copy_tile(const Compiled& c, const std::vector<int64_t>& strides, size_t axis, int64_t count,
                 const float* from, float* to) {
  const size_t last = c.axes.dims.size() - 1;
  const int64_t stride = strides[axis];
  if (axis < last) {
    for (int64_t i = 0; i < count; ++i, from += stride) {
      to = copy_tile(c, strides, axis + 1, c.axes.dims[axis + 1], from, to);
    }
    return to;
  }
  if (stride == 0) return std::fill_n(to, count, *from);
  if (stride == 1) return std::copy_n(from, count, to);
  for (int64_t i = 0; i < count; ++i, from += stride) *to++ = *from;
  return to;
}

class Run {
 public:
  Run(const Compiled& c, void* const* reads, void* scratch, ExpressionSink& sink)
      : c_(c), loops_(expression_loops()), sink_(sink) {
    auto* const floats = static_cast<float*>(scratch);
    for (size_t i = 0; i < c.offsets.size(); ++i) {
      if (c.offsets[i] >= 0) at_[i] = floats + c.offsets[i];
    }
    for (size_t i = 0; i < c.axes.strides.size(); ++i) {
      inputs_[i] = static_cast<const float*>(reads[i]) + c.axes.offsets[i];
      if (c.offsets[i] < 0) at_[i] = inputs_[i];
    }
  }

  void all() {
    for (const auto& [operand, value] : c_.constants) *scratch_of(operand) = value;
    const int64_t most = c_.tiling.count * c_.tiling.each;
    for (const int i : c_.copied_once) copy(i, c_.tiling.count);
    for (const Step& step : c_.once) {
      apply(step, scratch_of(step.result), step.all_numbers ? 1 : most);
    }
    const auto& dims = c_.axes.dims;
    const Tiling& t = c_.tiling;
    if (t.split < 0) {
      tile(0, t.each);
      return;
    }
    const auto split = static_cast<size_t>(t.split);
    std::array<int64_t, 64> index = {};
    for (;;) {
      for (int64_t i = 0; i < dims[split]; i += t.count) {
        const int64_t steps = std::min(t.count, dims[split] - i);
        tile(steps, steps * t.each);
        for (int k = 0; k < c_.inputs; ++k) {
          inputs_[static_cast<size_t>(k)] += steps * c_.axes.strides[static_cast<size_t>(k)][split];
        }
      }
      // The next row of the axes before.
      size_t axis = split;
      for (;; --axis) {
        for (int k = 0; k < c_.inputs; ++k) {
          const auto& strides = c_.axes.strides[static_cast<size_t>(k)];
          inputs_[static_cast<size_t>(k)] -= dims[axis] * strides[axis];
          if (axis > 0) inputs_[static_cast<size_t>(k)] += strides[axis - 1];
        }
        if (axis == 0) return;
        if (++index[axis - 1] < dims[axis - 1]) break;
        index[axis - 1] = 0;
      }
    }
  }

 private:
  float* scratch_of(int operand) const {
    return const_cast<float*>(at_[static_cast<size_t>(operand)]);
  }

  void apply(const Step& step, float* y, int64_t n) const {
    const float* from[kMostArguments] = {};
    for (size_t k = 0; k < step.from.size(); ++k) from[k] = at_[static_cast<size_t>(step.from[k])];
    loops_[step.loop][step.numbers](from, y, n);
  }

  // Copies the tile of an input as a run.
  void copy(int i, int64_t steps) {
    const auto first = static_cast<size_t>(std::max(c_.tiling.split, 0));
    const auto input = static_cast<size_t>(i);
    copy_tile(c_, c_.axes.strides[input], first, c_.tiling.split < 0 ? c_.axes.dims[0] : steps,
              inputs_[input], scratch_of(i));
  }

  // The next n elements of dst, of `steps` steps along the tiling's axis.
  void tile(int64_t steps, int64_t n) {
    float* const dst = sink_.begin(n);
    for (size_t i = 0; i < c_.axes.strides.size(); ++i) {
      if (c_.offsets[i] < 0) at_[i] = inputs_[i];
    }
    for (const int i : c_.copied) {
      const auto input = static_cast<size_t>(i);
      if (copied_[input] == inputs_[input] && copied_elements_[input] >= n) continue;
      copy(i, steps);
      copied_[input] = inputs_[input];
      copied_elements_[input] = n;
    }
    for (const Step& step : c_.each_tile) {
      if (step.all_numbers) {
        apply(step, scratch_of(step.result), 1);
      } else {
        apply(step, step.result == c_.result ? dst : scratch_of(step.result), n);
      }
    }
    if (c_.result_is_number) std::fill_n(dst, n, *at_[static_cast<size_t>(c_.result)]);
    sink_.end(n);
  }

  const Compiled& c_;
  const ExpressionLoops& loops_;
  ExpressionSink& sink_;
  std::array<const float*, 256> at_;  // where the operands are
  std::array<const float*, kMostExpressionInputs> inputs_, copied_ = {};
  std::array<int64_t, kMostExpressionInputs> copied_elements_ = {};
};

}  // namespace

ExpressionStream::ExpressionStream(const ExpressionProblem& p)
    : compiled_(std::make_unique<const Compiled>(Compiler(p).compiled())),
      elements_(p.elements()) {}
ExpressionStream::~ExpressionStream() = default;

size_t ExpressionStream::scratch_bytes() const {
  return static_cast<size_t>(compiled_->scratch_floats) * sizeof(float);
}

void ExpressionStream::run(void* const* reads, void* scratch, ExpressionSink& sink) const {
  if (elements_ > 0) Run(*compiled_, reads, scratch, sink).all();
}

}  // namespace lockstep::kernels::cpu
