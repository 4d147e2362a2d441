// What an op is, apart from any data: the thing that eager calls, the tape and plans share.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/shape.h"
#include "lockstep/engine/kernels/table.h"

namespace lockstep {

class Op;
using OpPtr = std::shared_ptr<const Op>;

// Two ops in sequence replaced by one. The fused op's inputs are the first op's, then the second's
// without the value between them.
struct FusedOps {
  OpPtr op;
  // For each output of the first (second) op, the fused op's output that stands for it; -1: gone,
  // so fusing is allowed only where nobody else reads it.
  std::vector<int> first_outputs;
  std::vector<int> second_outputs;
};

// An op with its parameters. Immutable, thread-safe.
class Op {
 public:
  virtual ~Op() = default;
  // The name that errors carry in brackets: "conv2d".
  virtual std::string_view type() const = 0;
  // Shapes of the outputs. Throws InvalidArgument, naming the op, what was wanted and what was
  // received, for inputs that do not fit.
  virtual std::vector<Shape> infer(std::span<const Shape> inputs) const = 0;
  // Whether an input may have bf16 or f16 elements; the outputs then have what the kernel gives.
  virtual bool takes_narrow(size_t input) const {
    (void)input;
    return false;
  }
  // The kernel for inputs that infer() accepted, in the layouts given.
  virtual kernels::Kernel compile(const kernels::Table& table,
                                  std::span<const TensorSpec> inputs) const = 0;
  // One op for this one followed by `next`, or nothing.
  virtual std::optional<FusedOps> fuse(const Op& next) const {
    (void)next;
    return std::nullopt;
  }
  // Whether the back end has a kernel for this fused op; where it has none, ops stay apart.
  virtual bool offered_by(const kernels::Table& table) const {
    (void)table;
    return true;
  }
};

// Throws InvalidArgument "[type] takes ... inputs, received ...".
void check_count(const Op& op, std::span<const Shape> inputs, size_t least, size_t most);

// Throws InvalidArgument "[type] elements of f32 wanted, received ..." for any other type, but bf16
// and f16 where the op takes them.
void check_floats(const Op& op, std::span<const TensorSpec> inputs);

// Throws Unsupported where inputs are bf16 or f16 and the back end does not compute with that.
void check_precision(const kernels::Table& table, std::span<const TensorSpec> inputs);

}  // namespace lockstep
