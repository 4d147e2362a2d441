// Expressions run a tile of dst at a time: each instruction is a loop over the tile, and what the
// next instructions need stays in the first cache. An operand is the memory of an input, a number,
// or a tile in scratch memory. The last instruction writes dst.
#include "lockstep/engine/kernels/elementwise/expression.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "lockstep/engine/kernels/cpu/elementwise/expression_loops.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/elementwise/broadcast_axes.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kTile = 1024;
// Rows of at least this many elements are tiles of their own if an input would have to be copied
// otherwise.
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
    const bool copies = std::count(with.begin(), with.end(), Reading::copied) > 0;
    if (t.each >= kLongRow && copies) return t;
    if (t.each * dims[axis] > kTile) {
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

// An instruction on operands by their numbers.
struct Step {
  Opcode opcode;
  unsigned numbers;  // the mask of arguments that are one number
  bool all_numbers;
  uint8_t a, b, c;
};

// What is known before memory is.
struct Compiled {
  BroadcastAxes axes;
  Tiling tiling;
  int inputs = 0;
  std::vector<Instruction> constants;
  std::vector<int> constant_operands;
  // In the order of the program, with the operand that each computes. `once`: those whose result is
  // one number for all of dst.
  std::vector<std::pair<Step, int>> once, each_tile;
  // Offsets of operands in scratch memory, in floats; -1: not there.
  std::vector<int64_t> places;
  int result = 0;
  bool result_is_number = false;
  int64_t scratch_floats = 0;
};

Compiled compiled(const ExpressionProblem& p) {
  check(p);
  Compiled c;
  c.axes = broadcast_axes(p);
  c.tiling = tiling_of(c.axes);
  c.inputs = static_cast<int>(p.src.size());
  const int operands = c.inputs + static_cast<int>(p.program.size());
  c.result = operands - 1;
  const auto inputs_of = [&](int operand) {
    const Instruction& at = p.program[static_cast<size_t>(operand - c.inputs)];
    const std::array<uint8_t, 3> all{at.a, at.b, at.c};
    return std::vector<int>(all.begin(), all.begin() + arity_of(at.opcode));
  };
  // The last instruction that reads an operand; -1: none.
  std::vector<int> last_use(static_cast<size_t>(operands), -1);
  last_use[static_cast<size_t>(c.result)] = operands;
  for (int i = operands; i-- > c.inputs;) {
    if (last_use[static_cast<size_t>(i)] < 0) continue;
    for (const int from : inputs_of(i)) {
      int& last = last_use[static_cast<size_t>(from)];
      last = std::max(last, i);
    }
  }
  // One number in each tile, and one in all tiles.
  std::vector<bool> number(static_cast<size_t>(operands)), fixed(number);
  c.places.assign(static_cast<size_t>(operands), -1);
  int64_t numbers = 0;  // their slots follow the tiles
  std::vector<std::pair<int, int64_t>> slots;
  std::vector<bool> taken;  // tiles
  const auto take_tile = [&] {
    const auto free =
        static_cast<size_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
    if (free == taken.size()) taken.push_back(false);
    taken[free] = true;
    return static_cast<int64_t>(free) * kTile;
  };
  for (int i = 0; i < c.inputs; ++i) {
    const auto at = static_cast<size_t>(i);
    number[at] = c.tiling.readings[at] == Reading::number;
    const auto& strides = c.axes.strides[at];
    fixed[at] = std::count(strides.begin(), strides.end(), 0) ==
                static_cast<std::ptrdiff_t>(strides.size());
    if (c.tiling.readings[at] == Reading::copied && last_use[at] >= 0) c.places[at] = take_tile();
  }
  for (int i = c.inputs; i < operands; ++i) {
    const auto at = static_cast<size_t>(i);
    if (last_use[at] < 0) continue;
    const Instruction& instruction = p.program[static_cast<size_t>(i - c.inputs)];
    if (instruction.opcode == Opcode::constant) {
      c.constants.push_back(instruction);
      c.constant_operands.push_back(i);
      number[at] = fixed[at] = true;
      slots.emplace_back(i, numbers++);
      continue;
    }
    Step step{instruction.opcode, 0, true, instruction.a, instruction.b, instruction.c};
    bool all_fixed = true;
    unsigned bit = 1;
    for (const int from : inputs_of(i)) {
      const auto source = static_cast<size_t>(from);
      if (number[source]) step.numbers |= bit;
      step.all_numbers = step.all_numbers && number[source];
      all_fixed = all_fixed && fixed[source];
      bit *= 2;
    }
    number[at] = step.all_numbers;
    fixed[at] = all_fixed;
    if (step.all_numbers) {
      step.numbers = 0;
      slots.emplace_back(i, numbers++);
    } else {
      // Loops go element by element, so a result may take the tile of an argument.
      for (const int from : inputs_of(i)) {
        const auto source = static_cast<size_t>(from);
        const bool in_tile = from >= c.inputs && !number[source];
        if (in_tile && last_use[source] == i) {
          taken[static_cast<size_t>(c.places[source] / kTile)] = false;
        }
      }
      if (i != c.result) c.places[at] = take_tile();
    }
    (all_fixed ? c.once : c.each_tile).emplace_back(step, i);
  }
  c.scratch_floats = static_cast<int64_t>(taken.size()) * kTile;
  for (const auto& [operand, slot] : slots) {
    c.places[static_cast<size_t>(operand)] = c.scratch_floats + slot;
  }
  c.scratch_floats += numbers;
  c.result_is_number = number[static_cast<size_t>(c.result)];
  return c;
}

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
  return std::copy_n(from, count, to);
}

class Run {
 public:
  Run(const Compiled& c, void* const* reads, float* dst, void* scratch)
      : c_(c), loops_(expression_loops()), dst_(dst) {
    auto* const floats = static_cast<float*>(scratch);
    for (size_t i = 0; i < c.places.size(); ++i) {
      if (c.places[i] >= 0) at_[i] = floats + c.places[i];
    }
    for (size_t i = 0; i < c.axes.strides.size(); ++i) {
      inputs_[i] = in(reads, static_cast<int>(i));
      if (c.places[i] < 0) at_[i] = inputs_[i];
    }
  }

  void all() {
    for (size_t i = 0; i < c_.constants.size(); ++i) {
      *scratch_of(c_.constant_operands[i]) = c_.constants[i].value;
    }
    for (const auto& [step, operand] : c_.once) apply(step, scratch_of(operand), 1);
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
    loops_[static_cast<size_t>(step.opcode)][step.numbers](at_[step.a], at_[step.b], at_[step.c], y,
                                                           n);
  }

  // The next n elements of dst, of `steps` steps along the tiling's axis.
  void tile(int64_t steps, int64_t n) {
    const auto first = static_cast<size_t>(std::max(c_.tiling.split, 0));
    for (size_t i = 0; i < c_.axes.strides.size(); ++i) {
      if (c_.places[i] < 0) {
        at_[i] = inputs_[i];
      } else if (copied_[i] != inputs_[i] || copied_elements_[i] < n) {
        const auto& dims = c_.axes.dims;
        copy_tile(c_, c_.axes.strides[i], first, c_.tiling.split < 0 ? dims[0] : steps, inputs_[i],
                  scratch_of(static_cast<int>(i)));
        copied_[i] = inputs_[i];
        copied_elements_[i] = n;
      }
    }
    for (const auto& [step, operand] : c_.each_tile) {
      if (step.all_numbers) {
        apply(step, scratch_of(operand), 1);
      } else {
        apply(step, operand == c_.result ? dst_ : scratch_of(operand), n);
      }
    }
    if (c_.result_is_number) std::fill_n(dst_, n, *at_[static_cast<size_t>(c_.result)]);
    dst_ += n;
  }

  const Compiled& c_;
  const ExpressionLoops& loops_;
  float* dst_;
  std::array<const float*, 256> at_;  // where the operands are
  std::array<const float*, kMostExpressionInputs> inputs_, copied_ = {};
  std::array<int64_t, kMostExpressionInputs> copied_elements_ = {};
};

}  // namespace

Kernel expression(const ExpressionProblem& p) {
  auto c = std::make_shared<const Compiled>(compiled(p));
  std::vector<Operand> reads;
  for (size_t i = 0; i < p.src.size(); ++i) {
    reads.push_back(input(static_cast<int>(i), p.src[i].plain()));
  }
  Kernel kernel;
  const int64_t count = p.dst.elements();
  kernel.forward = own_pass_with_scratch(std::move(reads), {output(0, plain_spec(p.dst))},
                                         static_cast<size_t>(c->scratch_floats) * sizeof(float),
                                         [c, count](void* const* r, void* const* w, void* scratch) {
                                           if (count > 0) Run(*c, r, out(w, 0), scratch).all();
                                         });
  kernel.rows_apart = p.dst.rank() > 0;
  for (size_t i = 0; i < p.src.size(); ++i) {
    const Shape& shape = p.src[i].shape;
    if (shape == p.dst) kernel.forward.in_place.push_back(static_cast<int>(i));
    // Of a broadcast input every row reads the same elements.
    const bool broadcast = shape.rank() < p.dst.rank() || shape.rank() == 0 || shape[0] == 1;
    kernel.rows_apart = kernel.rows_apart && (broadcast || shape[0] == p.dst[0]);
  }
  return kernel;
}

}  // namespace lockstep::kernels::cpu
