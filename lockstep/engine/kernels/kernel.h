// The border between what is computed (ops, plan) and how (a back end). A back end turns a problem
// into a Kernel: explicit passes (forward, backward-data, backward-weights), each saying which
// operands it reads and writes and in which layout it wants them. Whoever runs passes converts
// layouts, provides memory and decides the order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels {

// Where in a run a pass is executed: what keyed random numbers depend on.
struct StepInfo {
  uint64_t seed = 0;
  uint64_t iteration = 0;
  int64_t first_row = 0;  // position in the mini-batch of the first observation
  friend bool operator==(const StepInfo&, const StepInfo&) = default;
};

// One operand of a pass. `index` counts the op's inputs or outputs; the workspace has index 0.
struct Operand {
  enum class Kind : uint8_t { input, output, diff_output, diff_input, workspace };
  Kind kind;
  int index;
  TensorSpec spec;  // the layout that the pass wants or gives
};

inline Operand input(int i, TensorSpec s) { return {Operand::Kind::input, i, std::move(s)}; }
inline Operand output(int i, TensorSpec s) { return {Operand::Kind::output, i, std::move(s)}; }
inline Operand diff_output(int i, TensorSpec s) {
  return {Operand::Kind::diff_output, i, std::move(s)};
}
inline Operand diff_input(int i, TensorSpec s) {
  return {Operand::Kind::diff_input, i, std::move(s)};
}
inline Operand workspace(size_t bytes) {
  return {Operand::Kind::workspace, 0, {Shape{static_cast<int64_t>(bytes)}, DType::u8, nullptr}};
}

// A pass with its memory: ready to run as often as wanted, by one thread at a time. On a GPU it may
// be destroyed before the work it added to its queue is done.
using BoundPass = std::function<void(const StepInfo&)>;

// Addresses for binding, in the order of Pass::reads and Pass::writes; each holds its operand's
// spec.bytes(), on the pass's device. `scratch` holds Pass::scratch_bytes and keeps nothing between
// runs.
struct PassMemory {
  std::span<void* const> reads;
  std::span<void* const> writes;
  void* scratch = nullptr;
  // On a GPU: the queue (CUDA: stream) to which each run is added without waiting for it, and a
  // StepInfo in the device's memory that kernels read instead of the one they are called with, so
  // that runs can be recorded once and repeated (null for reorder, accumulate and zero). The caller
  // makes the device the thread's current one before it binds and runs.
  void* queue = nullptr;
  const StepInfo* device_step = nullptr;
};

// Immutable and shared by threads; each thread binds it to its own memory.
struct Pass {
  std::vector<Operand> reads;
  std::vector<Operand> writes;
  size_t scratch_bytes = 0;
  std::function<BoundPass(const PassMemory&)> bind;
  // What it writes, one operand, has the bytes of what it reads: a plan may take that
  // memory instead.
  bool copies = false;
  // Numbers of operands it reads over any of which its first result may be written, if that has as
  // many bytes; the best first.
  std::vector<int> in_place = {};

  bool defined() const { return static_cast<bool>(bind); }
};

// One op compiled for given shapes. Each backward pass writes the derivative of a scalar with
// respect to some inputs (diff_input), given those with respect to the outputs (diff_output).
// Results are overwritten, not accumulated.
struct Kernel {
  Pass forward;
  std::vector<Pass> backward;
};

}  // namespace lockstep::kernels
